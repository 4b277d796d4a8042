"""`enrol`, `strike` and `list`: the commands of every party that knows its clients by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.release.enrolment import Enrolment

StateArgument = Annotated[Path, typer.Argument(help="The store (SQLite).")]
NameArgument = Annotated[str, typer.Argument(help="The client's name.")]


def add_enrolment(app: typer.Typer, party: str, *, struck: str = "") -> None:
    """Give a party's command line these three.

    Args:
        app: the commands of `penrose PARTY`.
        party: its name on the command line, as remedies and examples have it.
        struck: what a client that is taken off the list keeps.
    """
    example = f"Example: penrose {party} {{}} {party}.sqlite{{}}"

    @app.command(
        "enrol",
        help=f"Enrol a client and print its credential, once.\n\n{example}".format("enrol", " host-17"),
    )
    def enrol(state: StateArgument, name: NameArgument) -> None:
        typer.echo(Enrolment(state, command=party).enrol(name).hex())

    @app.command(
        "strike", help=f"Take a client off the list{struck}.\n\n{example}".format("strike", " host-17")
    )
    def strike(state: StateArgument, name: NameArgument) -> None:
        Enrolment(state, command=party, must_exist=True).strike(name)
        say(f"{name} gets nothing more")

    @app.command("list", help=f"Print who is enrolled.\n\n{example}".format("list", " --format json"))
    def clients(state: StateArgument, form: FormatOption = Format.TABLE) -> None:
        rows = [{"name": name} for name in Enrolment(state, command=party, must_exist=True).clients()]
        print_rows(rows, ("name",), form, str(state))
