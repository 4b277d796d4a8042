"""What tools look at: the device's and the host's activities of one rank, as columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from penrose_ray.histogram import Counter


class HostKind(IntEnum):
    """What a row of the host's table is."""

    OPERATOR = 0
    CALL = 1
    """A call of the GPU's runtime, such as a launch."""
    SOURCE = 2
    """A function of the program, named with file and line."""
    REGION = 3
    """A range that the program's author named."""


class _Table:
    """Columns of equal length, all int64 unless the class says otherwise."""

    __slots__ = ()

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return tuple(field.name for field in fields(cls))  # type: ignore[arg-type] # subclasses are dataclasses

    @classmethod
    def of(cls, rows: int, /, **given: object) -> Self:
        """A table; columns that are not given hold 0, a scalar fills its column."""
        return cls(
            **{
                name: np.broadcast_to(np.asarray(given.get(name, 0), dtype=np.int64), (rows,))
                for name in cls.columns()
            }
        )

    @classmethod
    def of_matrix(cls, matrix: NDArray[np.int64]) -> Self:
        """A table from an (n, columns) matrix."""
        return cls(**{name: matrix[:, index] for index, name in enumerate(cls.columns())})

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Self:
        """Rows of a mask, or of indices in their order."""
        return type(self)(**{name: getattr(self, name)[rows] for name in self.columns()})


@dataclass(frozen=True, slots=True, eq=False)
class DeviceTable(_Table):
    """What GPUs did. Times are 0 where unknown, `kind` is a `KernelKind`, `queue` a stream of one device."""

    kind: NDArray[np.int64]
    name: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    device: NDArray[np.int64]
    queue: NDArray[np.int64]
    correlation: NDArray[np.int64]
    external: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    gap: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.name)

    @property
    def timed(self) -> NDArray[np.bool_]:
        """Rows whose times are known."""
        return np.not_equal(self.end_ns, 0)

    @property
    def duration_ns(self) -> NDArray[np.float64]:
        """Lengths, NaN where unknown."""
        return np.where(self.timed, (self.end_ns - self.start_ns).astype(np.float64), np.nan)


@dataclass(frozen=True, slots=True, eq=False)
class HostTable(_Table):
    """What host threads did. `shape` indexes `Trace.shapes`, `sequence` is autograd's number."""

    kind: NDArray[np.int64]
    name: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    thread: NDArray[np.int64]
    correlation: NDArray[np.int64]
    external: NDArray[np.int64]
    sequence: NDArray[np.int64]
    shape: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True, slots=True, eq=False)
class MemoryTable(_Table):
    """Allocations (`size_bytes` > 0) and releases (< 0); `block` numbers what was allocated together."""

    time_ns: NDArray[np.int64]
    block: NDArray[np.int64]
    size_bytes: NDArray[np.int64]
    device: NDArray[np.int64]
    """-1 is the host."""
    thread: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """One rank of a run: a file, or a member of an archive."""

    label: str
    format: str
    names: tuple[str, ...]
    models: tuple[str, ...]
    """Models of the devices by number, as far as the file names them."""
    device: DeviceTable
    host: HostTable
    memory: MemoryTable
    shapes: tuple[str, ...] = ("",)
    counters: Mapping[Counter, NDArray[np.float64]] | None = None
    """Measured values, aligned with `device`; NaN where nothing was measured."""
    marked: NDArray[np.int64] | None = None
    """Aligned with `device`: the row of `host` that is its region, -1 for none; None where times tell."""
    warnings: tuple[str, ...] = ()

    @property
    def duration_ns(self) -> NDArray[np.float64]:
        """Length of each device activity: from its times, else as the profiler measured it, else NaN."""
        length = self.device.duration_ns
        for counter, values in (self.counters or {}).items():
            if counter.name == "duration" and counter.unit == "ns":
                return np.where(np.isfinite(length), length, values)
        return length

    def measured(self, pattern: str) -> NDArray[np.float64] | None:
        """The sum of counters whose names fit the pattern, NaN where nothing was measured; None without."""
        chosen = [
            values for counter, values in (self.counters or {}).items() if re.search(pattern, counter.name)
        ]
        if not chosen:
            return None
        table = np.column_stack(chosen)
        return np.where(np.isfinite(table).any(axis=1), np.nansum(table, axis=1), np.nan)
