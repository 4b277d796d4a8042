"""`penrose config`: what a configuration comes to, and what may stand in one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows
from penrose_ray.cli.schema import Kind, json_schema, kind_of
from penrose_ray.draft import check_draft
from penrose_ray.errors import ConfigError
from penrose_ray.settings import load_settings
from penrose_ray.task import Task
from penrose_ray.toml_file import TomlFile, load_section, override_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Show what a configuration comes to, or its schema.")

_COLUMNS = ("key", "value", "origin")
_HIDDEN = "***"
_IN_ADDRESS = re.compile(r"(?<=//)[^/@\s]+(?=@)")
"""User and password of a URL."""
_IN_LINE = re.compile(r"(?i)^(\S*(?:password|secret|auth|bridge)\S*)\s.*")
"""A line of tor's configuration that holds a secret."""


@app.command("show")
def show(
    config: Annotated[
        Path, typer.Argument(help="Of a service or simulation; an owner's policy or enrolment.")
    ],
    overrides: SetOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Print each setting that is in force and where it comes from: file and line, variable, --set or default.

    Example: penrose config show configs/fleet.toml --set service.shards=4

    Variables such as PENROSE__SERVICE__PORT count for a service only, --set for services and simulations.
    Passwords in addresses are hidden. Values of [task] are checked when a service starts or a task is signed.
    """
    file = TomlFile(config)
    kind = kind_of(file.table)
    values, file = _loaded(kind, config, tuple(overrides or ()))
    rows = [
        {"key": ".".join(map(str, location)), "value": _masked(value), "origin": file.origin_of(location)}
        for location, value in _leaves((), values)
    ]
    if form is not Format.JSON:
        rows = [{**row, "value": json.dumps(row["value"])} for row in rows]
    print_rows(rows, _COLUMNS, form, f"{config}: {kind}")


@app.command("schema")
def schema(
    kind: Annotated[Kind, typer.Argument(help="What the file is for.")] = Kind.SERVICE,
) -> None:
    """Print the JSON schema of a configuration file, for editors and checks.

    Example: penrose config schema policy > policy.schema.json
    """
    typer.echo(json.dumps(json_schema(kind), indent=2))


def _loaded(kind: Kind, path: Path, overrides: tuple[str, ...]) -> tuple[dict[str, Any], TomlFile]:
    """The checked values of a file as built-in types, and the file with what replaced its values."""
    if kind is Kind.SERVICE:
        settings, file = load_settings(path, overrides)
        check_draft(file)
        return {**settings.model_dump(mode="json"), "task": task_with_defaults(settings)}, file
    if kind is Kind.SIMULATION:
        from penrose_ray.sim.settings import load_simulation  # noqa: PLC0415 - imports numpy

        file = TomlFile(path)
        override_with(file, overrides)
        return load_simulation(path, overrides).model_dump(mode="json"), file
    if overrides:
        raise ConfigError(f"A file of kind {kind} takes no --set.", remedy="Edit the file.")
    return load_section(path, kind.model).model_dump(mode="json"), TomlFile(path)


def task_with_defaults(settings: Settings) -> dict[str, Any]:
    """The task's draft, with the defaults of what it leaves out."""
    fields = msgspec.structs.fields(Task)
    defaults = {each.name: each.default for each in fields if not each.required and each.default != b""}
    return {**defaults, **settings.task}


def _leaves(location: tuple[str | int, ...], value: Any) -> Iterator[tuple[tuple[str | int, ...], Any]]:  # noqa: ANN401
    """Every value that is no table, with its place."""
    if isinstance(value, dict) and value:
        for key, each in value.items():
            yield from _leaves((*location, key), each)
    elif isinstance(value, list | tuple) and any(isinstance(each, dict) for each in value):
        for number, each in enumerate(value):
            yield from _leaves((*location, number), each)
    else:
        yield location, value


def _masked(value: Any) -> Any:  # noqa: ANN401 - a TOML value
    if isinstance(value, list | tuple):
        return [_masked(each) for each in value]
    if isinstance(value, str):
        return _IN_LINE.sub(rf"\1 {_HIDDEN}", _IN_ADDRESS.sub(_HIDDEN, value))
    return value
