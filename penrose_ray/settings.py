"""Configuration: TOML, then `PENROSE__A__B` variables, then `--set a.b=c`; unknown keys are errors.

Units stand in the key's name (`_s`, `_bytes`). Relative paths are relative to the current directory.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penrose_ray.errors import ConfigError

ENVIRONMENT_PREFIX = "PENROSE__"


class Section(BaseModel):
    """A table of a configuration file: immutable, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ServiceSettings(Section):
    """The aggregation service."""

    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    """0 lets the kernel choose a free port."""
    shards: int = Field(default=2, ge=1, le=256)
    state_dir: Path
    """Journals of the matcher, the shards and the ledger."""
    most_reports_per_request: int = Field(default=1000, ge=1)
    start_timeout_s: float = Field(default=60.0, gt=0)


class DesignServerSettings(Section):
    """The design server, which alone reads the private key."""

    key_file: Path
    passphrase_variable: str = ""
    """Name of the environment variable that holds the key file's passphrase; empty for none."""
    create_key: bool = False
    """Make the key file when it is missing (a demo's convenience)."""
    releases_dir: Path


class ClientSettings(Section):
    """One client (or several alike) of a topology."""

    kind: Literal["gpu", "replay"]
    program: str = ""
    """For `gpu`: a program of penrose_ray.actors.programs."""
    trace: str = ""
    """For `replay`: a trace file, or `bundled`."""
    repeat: int = Field(default=1, ge=1)
    """For `replay`: how often the trace is played."""
    launches_per_s: float = Field(default=0.0, ge=0)
    """For `replay`: pace; 0 is as fast as it goes."""
    seed: int = 0
    count: int = Field(default=1, ge=1)


class RunSettings(Section):
    """How long a run lasts and where its results go."""

    seconds: float = Field(default=30.0, gt=0)
    out_dir: Path = Path("out")


class Settings(Section):
    """Everything that `penrose up` and `penrose run` need."""

    task: dict[str, Any]
    """The task's draft; penrose_ray.draft turns it into a Task."""
    service: ServiceSettings
    design_server: DesignServerSettings
    clients: tuple[ClientSettings, ...] = ()
    policy_file: Path
    """The owner's policy that the clients of this topology obey."""
    run: RunSettings = RunSettings()


S = TypeVar("S", bound=BaseModel)


class TomlFile:
    """A parsed TOML file that can say on which line a key stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.text = path.read_text(encoding="utf-8")
            self.table: dict[str, Any] = tomllib.loads(self.text)
        except FileNotFoundError as error:
            raise ConfigError(f"There is no file {path}.", remedy="Check the path.") from error
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path} cannot be read: {error}.", remedy="Check the file.") from error
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path} is not TOML: {error}.", remedy="Correct that line.") from error

    def line_of(self, location: tuple[str | int, ...]) -> int | None:
        """Line number of the key at `location` (names and list positions), None when it is not in the file."""
        wanted = ".".join(str(part) for part in location)
        section = ""
        seen: dict[str, int] = {}
        for number, line in enumerate(self.text.splitlines(), start=1):
            if header := re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line):
                section = _section_path(header[2], seen, is_list=header[1] == "[[")
                found = section
            elif key := re.match(r"""\s*["']?([\w.-]+)["']?\s*=""", line):
                found = f"{section}.{key[1]}".lstrip(".")
            else:
                continue
            if found == wanted or found.startswith(f"{wanted}."):
                return number
        return None

    def unknown_key(self, location: tuple[str | int, ...], valid: list[str]) -> ConfigError:
        """The error for a key that is none of `valid`."""
        line = self.line_of(location)
        place = f"{self.path}, line {line}" if line else f"{self.path} and its overrides"
        nearest = difflib.get_close_matches(str(location[-1]), valid, n=1, cutoff=0.5)
        remedy = f"Did you mean {nearest[0]!r}?" if nearest else f"Valid keys here: {', '.join(sorted(valid))}."
        return ConfigError(f"{place}: unknown key {_dotted(location)!r}.", remedy=remedy)

    def wrong_value(self, location: tuple[str | int, ...], reason: str) -> ConfigError:
        """The error for a value of the wrong type or outside its range, or a missing key."""
        line = self.line_of(location)
        place = f"{self.path}, line {line}" if line else str(self.path)
        return ConfigError(f"{place}: {_dotted(location)}: {reason}.", remedy="Correct the value.")


def _section_path(name: str, seen: dict[str, int], *, is_list: bool) -> str:
    """`clients.0` for the first `[[clients]]`; sub-tables belong to the list's latest entry."""
    parts = []
    for part in name.split("."):
        parts.append(part.strip().strip("\"'"))
        path = ".".join(parts)
        if path in seen and not (is_list and path == name):
            parts.append(str(seen[path]))
    path = ".".join(parts)
    if is_list:
        seen[name] = seen.get(name, -1) + 1
        path = f"{path}.{seen[name]}"
    return path


def _dotted(location: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in location)


def validated(file: TomlFile, model: type[S]) -> S:
    """`file.table` as a `model`; the first problem is raised as a ConfigError with its line."""
    try:
        return model.model_validate(file.table)
    except ValidationError as error:
        first = error.errors()[0]
        location = tuple(first["loc"])
        if first["type"] == "extra_forbidden":
            raise file.unknown_key(location, _fields_at(model, location[:-1])) from error
        raise file.wrong_value(location, first["msg"].removesuffix(".")) from error


def _fields_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    current: type[BaseModel] = model
    for part in location:
        if isinstance(part, str) and part in current.model_fields:
            annotation = current.model_fields[part].annotation
            candidates = [annotation, *get_args(annotation)]
            current = next(each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel))
    return list(current.model_fields)


def load_section(path: Path, model: type[S]) -> S:
    """Read a whole file as one section."""
    return validated(TomlFile(path), model)


def load_settings(path: Path, overrides: tuple[str, ...] = ()) -> tuple[Settings, TomlFile]:
    """Read a configuration.

    Args:
        path: the TOML file.
        overrides: texts `a.b=value`, the value in TOML (a bare word counts as a string).

    Returns:
        The settings, and the file for later messages about the task's draft.
    """
    file = TomlFile(path)
    for name, value in sorted(os.environ.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            _assign(file, name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__"), value)
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"--set {override!r} has no '='.", remedy="Write --set section.key=value.")
        _assign(file, key.strip().split("."), value.strip())
    return validated(file, Settings), file


def _assign(file: TomlFile, path: list[str], value: str) -> None:
    table: Any = file.table
    for part in path[:-1]:
        table = _entry(table, part, path)
    last = path[-1]
    if isinstance(table, list):
        table[_position(table, last, path)] = _literal(value)
    elif isinstance(table, dict):
        table[last] = _literal(value)
    else:
        raise _not_a_table(path)


def _entry(table: Any, part: str, path: list[str]) -> Any:
    if isinstance(table, list):
        return table[_position(table, part, path)]
    if isinstance(table, dict):
        return table.setdefault(part, {})
    raise _not_a_table(path)


def _position(table: list[Any], part: str, path: list[str]) -> int:
    if not part.isdigit() or int(part) >= len(table):
        raise ConfigError(
            f"Override {'.'.join(path)!r}: the list has {len(table)} entries, there is none {part!r}.",
            remedy="Count from 0.",
        )
    return int(part)


def _not_a_table(path: list[str]) -> ConfigError:
    return ConfigError(
        f"Override {'.'.join(path)!r} goes through a plain value.", remedy="Check the sections in the TOML file."
    )


def _literal(value: str) -> Any:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
