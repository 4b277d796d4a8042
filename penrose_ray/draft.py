"""A task's draft: the `[task]` table of a configuration, made into a Task for a given key."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

import msgspec

from penrose_ray.task import Task

if TYPE_CHECKING:
    from penrose_ray.crypto.public_key import PublicKey
    from penrose_ray.settings import TomlFile


def task_from(file: TomlFile, key: PublicKey) -> Task:
    """The checked task that `[task]` of `file` describes.

    Raises:
        ConfigError: an unknown key (named with its line and the nearest valid one), a value of the wrong
            type, or values that cannot work together.
    """
    table = file.table["task"]
    _refuse_unknown(file, table, Task, ("task",))
    try:
        task = msgspec.convert({**table, "public_key": key.to_bytes()}, Task)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        location = ("task", *place.rstrip("`").replace("[", ".").replace("]", "").split(".")) if place else ("task",)
        raise file.wrong_value(location, reason) from error
    task.check()
    return task


def _refuse_unknown(file: TomlFile, value: Any, kind: Any, location: tuple[str | int, ...]) -> None:
    if isinstance(value, list):
        inner = next(iter(typing.get_args(kind)), None)
        for index, each in enumerate(value):
            _refuse_unknown(file, each, inner, (*location, index))
    elif isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        kinds = typing.get_type_hints(kind)
        valid = [name for name in kind.__struct_fields__ if name != "public_key"]
        for name, each in value.items():
            if name not in valid:
                raise file.unknown_key((*location, name), valid)
            _refuse_unknown(file, each, kinds[name], (*location, name))
