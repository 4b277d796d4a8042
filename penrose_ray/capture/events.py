"""Columns of the launch stream and the account of what became of every launch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class KernelKind(IntEnum):
    """What a row of the stream is."""

    KERNEL = 0
    GRAPH_LAUNCH = 1
    COPY = 2
    SET = 3
    SYNC = 4
    OPERATOR = 5
    GAUGE = 6
    """A reading of a whole device, not of one kernel."""


_COLUMNS: dict[str, tuple[type[np.generic], int]] = {
    "seq": (np.uint64, 1),
    "name_id": (np.uint32, 1),
    "kind": (np.uint8, 1),
    "process": (np.uint32, 1),
    "device": (np.uint16, 1),
    "context": (np.uint32, 1),
    "stream": (np.uint32, 1),
    "graph_node": (np.uint32, 1),
    "correlation": (np.uint64, 1),
    "start_ns": (np.int64, 1),
    "end_ns": (np.int64, 1),
    "grid": (np.uint32, 3),
    "block": (np.uint32, 3),
    "weight": (np.float64, 1),
    "counters": (np.float64, 0),
    "gap": (np.bool_, 1),
}
"""Name -> dtype and width; 0 means as wide as the source has counters."""
_DEFAULTS = {"weight": 1.0, "counters": np.nan}


@dataclass(frozen=True, slots=True, eq=False)
class EventBatch:
    """n launches as columns, in the order in which the host launched them.

    `name_id` and `device` index the source's tables. `start_ns` and `end_ns` are 0 where unknown. `counters`
    has a column for each of the source's counters, NaN where nothing was measured. `gap` marks a row before
    which launches were lost.
    """

    seq: NDArray[np.uint64]
    name_id: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    process: NDArray[np.uint32]
    device: NDArray[np.uint16]
    context: NDArray[np.uint32]
    stream: NDArray[np.uint32]
    graph_node: NDArray[np.uint32]
    correlation: NDArray[np.uint64]
    start_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    grid: NDArray[np.uint32]
    block: NDArray[np.uint32]
    weight: NDArray[np.float64]
    counters: NDArray[np.float64]
    gap: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def size_bytes(self) -> int:
        """Memory of all columns."""
        return sum(int(getattr(self, field.name).nbytes) for field in fields(self))

    @classmethod
    def of(cls, rows: int, width: int, /, **columns: object) -> EventBatch:
        """A batch of `rows` launches for a source with `width` counters.

        Columns that are not given hold 0, weight 1, counters NaN. Given columns are converted to
        their dtype; a scalar fills its column.
        """
        unknown = columns.keys() - _COLUMNS.keys()
        if unknown:
            raise ValueError(f"no such columns: {sorted(unknown)}")
        filled: dict[str, Any] = {}
        for name, (dtype, columns_wide) in _COLUMNS.items():
            shape = (rows,) if columns_wide == 1 else (rows, columns_wide or width)
            value = columns.get(name, _DEFAULTS.get(name, 0))
            array = np.asarray(value, dtype=dtype)
            filled[name] = array if array.shape == shape else np.broadcast_to(array, shape).copy()
        return cls(**filled)

    @classmethod
    def empty(cls, counters: int) -> EventBatch:
        """No launch, for a source with `counters` counters."""
        return cls.of(0, counters)

    def take(self, mask: NDArray[np.bool_] | NDArray[np.int64] | slice) -> EventBatch:
        """Rows of a boolean mask, of indices in their order, or of a slice (which copies nothing)."""
        return EventBatch(**{field.name: getattr(self, field.name)[mask] for field in fields(self)})

    def replace(self, **columns: object) -> EventBatch:
        """The same rows with some columns exchanged; each must have its column's shape."""
        kept: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        for name, value in columns.items():
            dtype = np.dtype(_COLUMNS[name][0])
            array: Any = value if getattr(value, "dtype", None) == dtype else np.asarray(value, dtype=dtype)
            if array.shape != kept[name].shape:
                raise ValueError(f"column {name} has shape {kept[name].shape}, not {array.shape}")
            kept[name] = array
        return EventBatch(**kept)

    @classmethod
    def concat(cls, batches: Sequence[EventBatch]) -> EventBatch:
        """The rows of one or more batches of the same source, one after the other."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            **{
                field.name: np.concatenate([getattr(batch, field.name) for batch in batches])
                for field in fields(cls)
            }
        )


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """What became of every launch that a source saw.

    Always `seen == delivered + dropped + pending`. What is no launch of its own or cannot be read as one is
    counted beside: `duplicates` and `damaged` records.
    """

    seen: int = 0
    delivered: int = 0
    dropped: int = 0
    pending: int = 0
    """Launches that wait for `poll`."""
    bad_timestamps: int = 0
    """Launches delivered without times, because theirs were impossible."""
    gaps: int = 0
    """Places where launches were lost."""
    duplicates: int = 0
    damaged: int = 0
    """Records that could not be read."""
    unread: int = 0
    """Armed launches whose counters could not be read; they are NaN."""
    late_arms: int = 0
    """Launches that were armed after they had happened."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Whether a source works on this machine, and if not, why not and what to do."""

    available: bool
    per_kernel_counters: bool
    reasons: tuple[str, ...] = ()
