"""`penrose issuer`: the token issuer, a party apart from the aggregation service."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Annotated

import typer

from penrose_ray.cli.enrolment import StateArgument, add_enrolment
from penrose_ray.cli.output import say
from penrose_ray.cli.passphrase import VariableOption, passphrase_in
from penrose_ray.cli.serving import CertificateOption, HostOption, KeyOption, PortOption, run_server
from penrose_ray.clock import SystemClock
from penrose_ray.release.issuing import Issuer, IssuerKeys
from penrose_ray.release.tokens import DAY_S
from penrose_ray.snippet.identity import NameKeyFile, write_name_key

app = typer.Typer(no_args_is_help=True, help="Issue tokens: enrol clients, sign what they may send.")
add_enrolment(app, "issuer", struck="; its tokens of today stay good")
KeyArgument = Annotated[Path, typer.Argument(help="The issuer's key file.")]


@app.command("new")
def new(
    path: KeyArgument,
    out: Annotated[Path, typer.Option("--out", help="Where the public keys go, for penrose task sign.")],
    days: Annotated[int, typer.Option("--days", min=1, max=400, help="Days for which to make keys.")] = 90,
    passphrase_variable: VariableOption = "",
) -> None:
    """Make a signing key a day, from today on, and write the public ones for the task.

    Example: penrose issuer new issuer.key --out issuer.pub --days 90
    """
    today = int(SystemClock().now_s() // DAY_S)
    keys = IssuerKeys.generate(today, days)
    keys.write(path, passphrase=passphrase_in(passphrase_variable))
    out.write_bytes(keys.public().encode())
    say(f"{path} and {out} written; the last day is {today + days - 1}")


@app.command("name-key")
def name_key(path: Annotated[Path, typer.Argument(help="The file to write.")]) -> None:
    """Make the name key of a fleet and print its hash, `identity_key` of a task in identity mode `keyed`.

    Example: penrose issuer name-key names.key
    """
    typer.echo(base64.b64encode(hashlib.sha256(write_name_key(path)).digest()).decode())
    say(f"{path} written; serve it with penrose issuer serve --name-key, or copy it to clients")


@app.command("serve")
def serve(  # noqa: PLR0913 - each argument is an option of the command
    path: KeyArgument,
    state: StateArgument,
    tokens_per_day: Annotated[int, typer.Option("--tokens-per-day", min=1, help="c, as in the task.")] = 32,
    name_key: Annotated[
        Path | None, typer.Option("--name-key", help="Hand this name key out to enrolled clients.")
    ] = None,
    *,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8470,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    passphrase_variable: VariableOption = "",
) -> None:
    """Answer clients over HTTP until interrupted.

    Example: penrose issuer serve issuer.key issuer.sqlite --tokens-per-day 32
    """
    from penrose_ray.actors.issuer import application  # noqa: PLC0415 - the server's libraries

    keys = IssuerKeys.read(path, passphrase=passphrase_in(passphrase_variable))
    names = b"" if name_key is None else NameKeyFile(name_key).name_key()
    issuer = Issuer(state, keys, tokens_per_day=tokens_per_day, clock=SystemClock())
    try:
        run_server(application(issuer, name_key=names), host, port, certificate, key)
    finally:
        issuer.close()
