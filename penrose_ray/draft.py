"""A task's draft: the `[task]` table of a configuration, made into a Task for a given key.

Beside the task's own fields a draft may have `[[task.counters]]`: each makes one counter set of one axis for
every vendor it names, called `name-vendor`. Without a `rotation` all counter sets are watched together.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from penrose_ray.errors import ConfigError
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.task import FieldError, Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.public_key import PublicKey
    from penrose_ray.toml_file import TomlFile


_SIGNED_IN = ("public_key", "issuer_keys", "service_key")
"""Fields that `penrose task sign` may add to a draft."""


class CounterDraft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Short form of counter sets that differ in their vendor only."""

    name: str
    """The counter's name."""
    unit: str
    """The counter's unit."""
    source: str
    """Which back end measures it."""
    vendors: tuple[str, ...]
    """A counter set is made for each, called `name-vendor`."""
    scale: Literal["linear", "log"]
    """Equal bins, or equal ratios."""
    low: float
    """Upper edge of the first bin."""
    high: float
    """Lower edge of the last bin."""

    def counter_sets(self) -> list[CounterSet]:
        """One for each vendor."""
        axis = Axis(self.scale, self.low, self.high)
        return [
            CounterSet(
                f"{self.name}-{vendor}", (Counter(self.name, self.unit, self.source, vendor),), (axis,)
            )
            for vendor in self.vendors
        ]


def check_draft(file: TomlFile) -> None:
    """Refuse unknown keys of `[task]` before anything starts; values are checked with the key at hand."""
    table = file.table.get("task")
    if not isinstance(table, dict):
        raise file.wrong_value(("task",), "a table is needed that describes the task")
    _refuse_unknown(file, table, Task, ("task",))


def task_from(file: TomlFile, key: PublicKey) -> Task:
    """The checked task that `[task]` of `file` describes.

    Raises:
        ConfigError: an unknown key (named with its line and the nearest valid one), a value of the wrong
            type, or values that cannot work together.
    """
    check_draft(file)
    table = file.table["task"]
    fields = {**table, "public_key": key.to_bytes()}
    drafts: list[CounterDraft] = _converted(
        file, fields.pop("counters", []), list[CounterDraft], ("task", "counters")
    )
    given: list[CounterSet] = _converted(
        file, fields.get("counter_sets", []), list[CounterSet], ("task", "counter_sets")
    )
    sets = [*given, *(each for draft in drafts for each in draft.counter_sets())]
    fields["counter_sets"] = msgspec.to_builtins(sets)
    fields.setdefault("rotation", [[each.name for each in sets]])
    task: Task = _converted(file, fields, Task, ("task",))
    _check(file, task)
    return task


def _check(file: TomlFile, task: Task) -> None:
    """`task.check`, whose error says which line, variable or option gave the value."""
    given = len(file.table["task"].get("counter_sets", ()))
    each_set = (
        (f"counter_sets.{place}" if place < given else "counters", each.check)
        for place, each in enumerate(task.counter_sets)
    )
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("slot_profile", task.profile),
        *each_set,
        ("", task.check),
    )
    for field, check in checks:
        try:
            check()
        except ConfigError as error:
            place = file.place_of(("task", error.field if isinstance(error, FieldError) else field))
            raise ConfigError(f"{place}: {error.message}", remedy=error.remedy) from error


def require_agreement(file: TomlFile, task: Task) -> None:
    """Refuse a `[task]` that asks for something else than the signed task; there may be none.

    Raises:
        ConfigError: the field and its line; or as `task_from`.
    """
    if "task" not in file.table:
        return
    drafted = task_from(file, task.key())
    for name in Task.__struct_fields__:
        if name not in _SIGNED_IN and getattr(drafted, name) != (wanted := getattr(task, name)):
            raise file.wrong_value(("task", name), f"the signed task has {wanted!r}")


def _converted(file: TomlFile, value: Any, kind: Any, location: tuple[str | int, ...]) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        inner = place.rstrip("`").replace("[", ".").replace("]", "").strip(".")
        parts = tuple(int(part) if part.isdigit() else part for part in inner.split(".") if part)
        raise file.wrong_value((*location, *parts), reason) from error


def _refuse_unknown(file: TomlFile, value: Any, kind: Any, location: tuple[str | int, ...]) -> None:
    if isinstance(value, list):
        inner = next(iter(typing.get_args(kind)), None)
        for index, each in enumerate(value):
            _refuse_unknown(file, each, inner, (*location, index))
    elif isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        kinds = typing.get_type_hints(kind)
        kinds.pop("public_key", None)
        if kind is Task:
            kinds["counters"] = list[CounterDraft]
        for name, each in value.items():
            if name not in kinds:
                raise file.unknown_key((*location, name), list(kinds))
            _refuse_unknown(file, each, kinds[name], (*location, name))
