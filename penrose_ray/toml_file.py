"""Configuration files: TOML, then `PENROSE__A__B` variables, then `--set a.b=c`; unknown keys are errors.

What is wrong is told with the line, variable or option that it comes from.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

ENVIRONMENT_PREFIX = "PENROSE__"
DEFAULT = "default"
"""Origin of a value that nobody gave."""
S = TypeVar("S", bound=BaseModel)


class TomlFile:
    """A parsed TOML file that can say on which line a key stands."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.overridden: dict[str, str] = {}
        """Dotted path -> the option or variable that set it after the file was read."""
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
        """Line of the key at `location` (names and list positions), None when it is not in the file."""
        wanted = _dotted(location)
        holder: _Entry | None = None
        for entry in _entries(self.text):
            if entry.path == wanted or entry.path.startswith(f"{wanted}."):
                return entry.first_line
            if wanted.startswith(f"{entry.path}."):
                holder = entry
        return holder and _line_inside(holder, str(location[-1]))

    def place_of(self, location: tuple[str | int, ...]) -> str:
        """Where the value at `location` comes from, or its section when it is missing."""
        wanted = _dotted(location)
        for path, origin in self.overridden.items():
            if f"{wanted}.".startswith(f"{path}.") or path.startswith(f"{wanted}."):
                return origin
        lines = (self.line_of(location[:length]) for length in range(len(location), 0, -1))
        line = next((line for line in lines if line), None)
        return f"{self.path}, line {line}" if line else str(self.path)

    def origin_of(self, location: tuple[str | int, ...]) -> str:
        """Which line, variable or option gave the value at `location`, without the value; or `default`."""
        value: Any = self.table
        for part in location:
            here = isinstance(value, list) if isinstance(part, int) else isinstance(value, dict)
            if not here or (part >= len(value) if isinstance(part, int) else part not in value):
                return DEFAULT
            value = value[part]
        place = self.place_of(location)
        return place.partition("=")[0] if place.startswith("--set") else place

    def unknown_key(self, location: tuple[str | int, ...], valid: list[str]) -> ConfigError:
        """The error for a key that is none of `valid`."""
        nearest = difflib.get_close_matches(str(location[-1]), valid, n=1, cutoff=0.5)
        remedy = (
            f"Did you mean {nearest[0]!r}?" if nearest else f"Valid keys here: {', '.join(sorted(valid))}."
        )
        return ConfigError(f"{self.place_of(location)}: unknown key {_dotted(location)!r}.", remedy=remedy)

    def wrong_value(self, location: tuple[str | int, ...], reason: str) -> ConfigError:
        """The error for a value of the wrong type or outside its range, or a missing key."""
        return ConfigError(
            f"{self.place_of(location)}: {_dotted(location)}: {reason}.", remedy="Correct the value."
        )


class _Entry(NamedTuple):
    """A key or section header of a TOML text with the text that it owns."""

    path: str
    first_line: int
    text: str


_STRING_OR_COMMENT = re.compile(
    r'"""[\s\S]*?"""|' + r"'''[\s\S]*?'''" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'|#[^\n]*"
)
_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def _entries(text: str) -> Iterator[_Entry]:
    """Headers and top-level keys in file order; a value that spans lines belongs to its key."""
    section, depth, seen = "", 0, dict[str, int]()
    current: _Entry | None = None
    for number, line in enumerate(_STRING_OR_COMMENT.sub(_masked, text).split("\n"), start=1):
        header, key = (None, None) if depth else (_HEADER.match(line), _KEY.match(line))
        if current and not header and not key:
            current = current._replace(text=f"{current.text}\n{line}")
        elif header or key:
            if current:
                yield current
            if header:
                section = _section_path(_parts(header[2]), seen, is_list=header[1] == "[[")
            path = section if header else ".".join(filter(None, [section, *_parts(key[1])])) if key else ""
            current = _Entry(path, number, line)
        if not header:
            depth += sum(map(line.count, "[{")) - sum(map(line.count, "]}"))
    if current:
        yield current


def _masked(found: re.Match[str]) -> str:
    """A comment disappears; a string keeps its letters and loses what could be taken for structure."""
    return "" if found[0].startswith("#") else re.sub(r"[\[\]{}=#]", "_", found[0])


def _line_inside(holder: _Entry, key: str) -> int | None:
    """Line of `key` in the inline tables of an entry's value."""
    _, _, value = holder.text.partition("=")
    found = re.search(rf"""(?<![\w-])["']?{re.escape(key)}["']?\s*=""", value)
    return holder.first_line + value.count("\n", 0, found.start()) if found else None


def _parts(name: str) -> list[str]:
    return [part.strip().strip("\"'") for part in name.split(".")]


def _section_path(parts: list[str], seen: dict[str, int], *, is_list: bool) -> str:
    """`clients.0` for the first `[[clients]]`; sub-tables belong to the list's latest entry."""
    path = ""
    for position, part in enumerate(parts, start=1):
        path = f"{path}.{part}".lstrip(".")
        if is_list and position == len(parts):
            seen[path] = seen.get(path, -1) + 1
        if path in seen:
            path = f"{path}.{seen[path]}"
    return path


def _dotted(location: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in location)


def validated(file: TomlFile, model: type[S]) -> S:
    """`file.table` as a `model`; one problem is raised as a ConfigError with its line.

    An unknown key goes before a missing one: it may be that one, misspelt.
    """
    try:
        return model.model_validate(file.table)
    except ValidationError as error:
        problems = error.errors()
        first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
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
            current = next(
                each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)
            )
    return list(current.model_fields)


def load_section(path: Path, model: type[S]) -> S:
    """Read a whole file as one section."""
    return validated(TomlFile(path), model)


def override_from_environment(file: TomlFile) -> None:
    """Apply the variables `PENROSE__A__B`, by name."""
    for name, value in sorted(os.environ.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            path = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            _assign(file, path, value, f"Variable {name}")


def override_with(file: TomlFile, overrides: Iterable[str]) -> None:
    """Apply `--set` options: texts `a.b=value`, the value in TOML.

    Raises:
        ConfigError: a text without `=`, or a path that leads nowhere.
    """
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals:
            raise ConfigError(f"--set {override!r} has no '='.", remedy="Write --set section.key=value.")
        _assign(file, key.strip().split("."), value.strip(), f"--set {override}")


def _assign(file: TomlFile, path: list[str], value: str, origin: str) -> None:
    file.overridden[".".join(path)] = origin
    table: Any = file.table
    for part in path[:-1]:
        table = _entry(table, part, origin)
    last = path[-1]
    if isinstance(table, list):
        table[_position(table, last, origin)] = _literal(value)
    elif isinstance(table, dict):
        table[last] = _literal(value)
    else:
        raise _not_a_table(origin)


def _entry(table: Any, part: str, origin: str) -> Any:
    if isinstance(table, list):
        return table[_position(table, part, origin)]
    if isinstance(table, dict):
        return table.setdefault(part, {})
    raise _not_a_table(origin)


def _position(table: list[Any], part: str, origin: str) -> int:
    if not part.isdecimal() or int(part) >= len(table):
        raise ConfigError(
            f"{origin}: the list has {len(table)} entries, there is none {part!r}.", remedy="Count from 0."
        )
    return int(part)


def _not_a_table(origin: str) -> ConfigError:
    return ConfigError(f"{origin}: the name goes through a plain value.", remedy="Name a key of a section.")


def _literal(value: str) -> Any:
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value
