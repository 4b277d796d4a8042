"""A whole recording in columns: what every file reader produces and `ReplaySource` plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penrose_ray.capture.events import EventBatch
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from penrose_ray.capture.marks import Mark
    from penrose_ray.capture.tally import Tally

_VENDORS = {
    "pocl": ("pthread-", "pocl"),
    "nvidia": ("nvidia", "tesla", "geforce", "quadro", "rtx", "gtx", "a100", "h100", "h200", "b200", "v100"),
    "amd": ("amd", "instinct", "radeon", "gfx", "mi100", "mi200", "mi250", "mi300", "mi350", "mi355"),
    "intel": ("intel", "arc("),
}
_ROW = (
    "name_id",
    "process",
    "device",
    "context",
    "stream",
    "graph_node",
    "correlation",
    "start_ns",
    "end_ns",
)
_U32 = 0xFFFFFFFF
_I63 = (1 << 63) - 1
LARGEST_NS = 1 << 62
"""A time beyond this (the year 2116) is not believed."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Launches in host launch order with the tables that their columns index.

    `batch.counters` holds everything that the file measured, column 0 the duration.
    """

    format: str
    batch: EventBatch
    names: tuple[str, ...]
    devices: tuple[str, ...]
    counters: tuple[Counter, ...]
    tally: Tally
    operators_linked: int = 0
    marks: Mapping[int, tuple[Mark, ...]] = field(default_factory=dict)
    """Regions by process, their launches counted by `batch.correlation` from 1."""


class Launch(NamedTuple):
    """One launch as a reader of rows finds it; sizes and ids are cut to their columns' width."""

    name: str
    start_ns: int = 0
    end_ns: int = 0
    process: int = 0
    device: int = 0
    """The file's own number of the device."""
    model: str = ""
    context: int = 0
    stream: int = 0
    graph_node: int = 0
    correlation: int = 0
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)
    gap: bool = False


class NameTable:
    """Ids of names in order of first appearance."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}

    def id_of(self, name: str) -> int:
        """The name's id, a new one when it is new."""
        known = self._ids.setdefault(name, len(self.names))
        if known == len(self.names):
            self.names.append(name)
        return known


class DeviceTable:
    """Ids of devices, each known to its file by a (process, number) pair."""

    def __init__(self) -> None:
        self.models: list[str] = []
        self._ids: dict[tuple[int, int], int] = {}

    def id_of(self, process: int, number: int, model: str) -> int:
        """The device's index; `model` counts when the device is new."""
        known = self._ids.setdefault((process, number), len(self.models))
        if known == len(self.models):
            self.models.append(model or "unknown")
        return known


class LaunchRows:
    """Collects launches one by one, for formats that are read by rows."""

    def __init__(self) -> None:
        self.names = NameTable()
        self.devices = DeviceTable()
        self._rows: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, launch: Launch) -> None:
        """Append a launch."""
        self._rows.append(
            (
                self.names.id_of(launch.name),
                launch.process & _U32,
                self.devices.id_of(launch.process, launch.device, launch.model),
                launch.context & _U32,
                launch.stream & _U32,
                launch.graph_node & _U32,
                launch.correlation & _I63,
                _bounded(launch.start_ns),
                _bounded(launch.end_ns),
                *(size & _U32 for size in (*launch.grid, *launch.block)),
                launch.gap,
            )
        )

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """The launches as columns of `EventBatch`."""
        table = np.array(self._rows, dtype=np.int64).reshape(-1, len(_ROW) + 7)
        columns: dict[str, NDArray[np.generic]] = {name: table[:, index] for index, name in enumerate(_ROW)}
        rest = table[:, len(_ROW) :]
        return {**columns, "grid": rest[:, :3], "block": rest[:, 3:6], "gap": rest[:, 6].astype(np.bool_)}


def _bounded(time_ns: int) -> int:
    """A time, or -1 (which `checked_times` counts) when it does not fit."""
    return time_ns if -1 <= time_ns <= LARGEST_NS else -1


def duration_counter(source: str, devices: DeviceTable, *, vendor: str = "") -> Counter:
    """The counter that every recording has; the vendor comes from the models unless the format implies it."""
    return Counter("duration", "ns", source, vendor or vendor_of_models(devices.models))


def vendor_of_models(models: Iterable[str]) -> str:
    """`nvidia`, `amd`, `intel` or `pocl` when all models are of it, else `unknown`."""
    found = {_vendor_of(model.lower()) for model in models}
    return found.pop() if len(found) == 1 else "unknown"


def _vendor_of(model: str) -> str:
    return next(
        (vendor for vendor, words in _VENDORS.items() if any(word in model for word in words)), "unknown"
    )


def checked_times(
    start_ns: NDArray[np.int64], end_ns: NDArray[np.int64], tally: Tally
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The times with impossible pairs (reversed, negative, beyond 2116) set to 0 = unknown, and counted.

    Two zeros mean that the file has no times, which is no fault of the launch.
    """
    bad = (end_ns < start_ns) | (end_ns < 0) | (start_ns < 0) | (end_ns > LARGEST_NS)
    count = int(bad.sum())
    if count:
        tally.bad_timestamps += count
        tally.warn(f"{count} launches have impossible times: kept in order, without a duration.")
    return np.where(bad, 0, start_ns), np.where(bad, 0, end_ns)


def durations(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> NDArray[np.float64]:
    """Length of each launch, NaN where unknown."""
    return np.where(end_ns == 0, np.nan, (end_ns - start_ns).astype(np.float64))


def launch_order(
    process: NDArray[np.uint32], correlation: NDArray[np.uint64], start_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Indices that sort launches as the host launched them: per process by correlation, then by start.

    A launch without a correlation (0) goes behind the one that started before it.
    """
    by_start = np.lexsort((start_ns, process))
    if (correlation == 0).any() and (correlation != 0).any():
        filled = correlation[by_start]
        first = np.diff(process[by_start], prepend=0xFFFFFFFF) != 0
        known = np.where((filled != 0) | first, np.arange(len(filled)), 0)
        filled = filled[np.maximum.accumulate(known)]
        key = np.empty_like(correlation)
        key[by_start] = filled
    else:
        key = correlation
    return np.lexsort((start_ns, key, process)).astype(np.int64)


def assemble(  # noqa: PLR0913 - the parts of a recording
    format_: str,
    columns: Mapping[str, NDArray[np.generic]],
    *,
    names: NameTable,
    devices: DeviceTable,
    duration: Counter,
    tally: Tally,
    measured: Mapping[Counter, NDArray[np.float64]] | None = None,
    in_order: bool = False,
    operators_linked: int = 0,
) -> Recording:
    """Check times, sort to launch order, and number the launches.

    Args:
        format_: name of the file format.
        columns: columns of `EventBatch`, in file order; at least times, `name_id` and `device`.
        names: names that `name_id` indexes.
        devices: models that `device` indexes.
        duration: the counter of end - start.
        tally: the reader's account so far.
        measured: further counters, aligned with the columns; `duration` too where the file has no times.
        in_order: the file's order is the launch order.
        operators_linked: launches linked to a framework's operator.
    """
    rows = len(columns["start_ns"])
    if not rows:
        tally.warn("The file holds no kernel: was the GPU's activity recorded?")
    start, end = checked_times(
        np.asarray(columns["start_ns"], dtype=np.int64), np.asarray(columns["end_ns"], dtype=np.int64), tally
    )
    extra = dict(measured or {})
    length = extra.pop(duration, None)
    counters = (duration, *extra)
    values = (
        np.column_stack([durations(start, end) if length is None else length, *extra.values()])
        if rows
        else np.empty((0, len(counters)))
    )
    given = {**columns, "start_ns": start, "end_ns": end, "counters": values}
    batch = EventBatch.of(rows, len(counters), **given)
    if not in_order:
        batch = batch.take(launch_order(batch.process, batch.correlation, batch.start_ns))
    tally.seen += rows
    tally.gaps += int(batch.gap.sum())
    return Recording(
        format=format_,
        batch=batch.replace(seq=np.arange(rows)),
        names=tuple(names.names),
        devices=tuple(devices.models),
        counters=counters,
        tally=tally,
        operators_linked=operators_linked,
    )
