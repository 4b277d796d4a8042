"""From batches as they arrive to batches as snippets need them: in launch order, once each, kernels only.

One code path for numpy and cupy: every step is an operation of the array's own namespace.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from penrose_ray.capture.events import EventBatch, KernelKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penrose_ray.capture.guard import BusyThinner

_IDENTITY = ("process", "device", "correlation", "graph_node", "name_id")
"""Two records that agree in these and in their times are one launch, if they have a correlation at all."""
_ORDER = ("start_ns", "correlation", "process")
"""Sort keys, the most significant last."""


@dataclass(slots=True)
class Digested:
    """What a processor did so far."""

    launches: int = 0
    duplicates: int = 0
    late: int = 0
    """Launches that came after their place in the order had been given out; left out, with a gap."""
    dropped: int = 0
    """Launches that found the buffer full."""
    other_kinds: int = 0
    thinned: int = 0
    """Fine events left out because the GPU was busy; the weights of the others make up for them."""


def array_namespace(array: Any) -> Any:  # noqa: ANN401 - numpy or cupy, by what the array is
    """The module whose functions take this array."""
    if type(array).__module__.startswith("cupy"):
        import cupy  # noqa: PLC0415 - optional extra `gpu`

        return cupy
    return np


def launch_sorted(batch: EventBatch) -> EventBatch:
    """Rows by process, then correlation, then start; nothing is copied when they are so already.

    Where a start is unknown (0), rows of one correlation keep their order.
    """
    xp = array_namespace(batch.seq)
    order = None
    for name in _ORDER[1:] if bool((batch.start_ns == 0).any()) else _ORDER:
        key = getattr(batch, name) if order is None else getattr(batch, name)[order]
        if len(key) and bool((key[1:] < key[:-1]).any()):
            by_key = xp.argsort(key, kind="stable")
            order = by_key if order is None else order[by_key]
    return batch if order is None else batch.take(order)


def repeated(batch: EventBatch) -> NDArray[np.bool_]:
    """Mask of rows of a sorted batch that say the same as the row before.

    Where times are unknown, the correlation decides alone; but nodes of a CUDA graph run again under one
    correlation, so without times they are never the same.
    """
    xp = array_namespace(batch.seq)
    same: NDArray[np.bool_] = xp.zeros(len(batch), dtype=bool)
    if len(batch) > 1:
        start, end = batch.start_ns, batch.end_ns
        unknown = (start[1:] == 0) | (start[:-1] == 0)
        alike = (start[1:] == start[:-1]) & (end[1:] == end[:-1])
        same[1:] = xp.where(unknown, batch.graph_node[1:] == 0, alike) & (batch.correlation[1:] != 0)
        for name in _IDENTITY:
            column = getattr(batch, name)
            same[1:] &= column[1:] == column[:-1]
    return same


class EventProcessor:
    """Two buffers: one is filled by `feed` while `take` digests the other, in another thread if wanted.

    Args:
        hold: launches at the end of the order that wait for the next `take`, since records of parallel
            streams arrive out of order.
        capacity: launches that may wait; further batches are dropped, counted, and followed by a gap.
        kinds: kinds of rows that pass.
        thinner: keeps fewer rows of other kinds than kernels while the GPU is busy.
        utilisation: the GPU's, 0 to 1, NaN where unknown; asked once a `take`.
    """

    def __init__(
        self,
        *,
        hold: int = 0,
        capacity: int = 1 << 22,
        kinds: tuple[KernelKind, ...] = (KernelKind.KERNEL,),
        thinner: BusyThinner | None = None,
        utilisation: Callable[[], float] = lambda: math.nan,
    ) -> None:
        self._hold = hold
        self._capacity = capacity
        self._kinds = kinds
        self._thinner = thinner
        self._utilisation = utilisation
        self._filling: list[EventBatch] = []
        self._rows = 0
        self._gap = False
        self._gap_ahead = False
        """Rows before a gap were left out with nothing behind them: the next row given out has it."""
        self._held: EventBatch | None = None
        self._last: EventBatch | None = None
        self._lock = threading.Lock()
        self.digested = Digested()

    @property
    def held(self) -> EventBatch | None:
        """What waits for the next `take`, since records of earlier launches may come."""
        return self._held

    def feed(self, batch: EventBatch) -> None:
        """Add a batch to the buffer being filled."""
        if not len(batch):
            return
        with self._lock:
            if self._rows + len(batch) > self._capacity:
                self.digested.dropped += len(batch)
                self._gap = True
                return
            self._filling.append(_with_gap(batch) if self._gap else batch)
            self._rows += len(batch)
            self._gap = False

    def take(self, *, last: bool = False) -> EventBatch | None:
        """Digest what was fed; None when nothing is ready. `last` gives out what is held back too."""
        with self._lock:
            parts, self._filling = self._filling, []
            self._rows = 0
        parts = ([self._held] if self._held is not None else []) + parts
        self._held = None
        if not parts:
            return None
        batch = launch_sorted(EventBatch.concat(parts))
        if not last and self._hold:
            ready = max(0, len(batch) - self._hold)
            self._held, batch = batch.take(slice(ready, None)), batch.take(slice(0, ready))
        batch = self._digest(batch)
        return batch if len(batch) else None

    def _digest(self, batch: EventBatch) -> EventBatch:
        if not len(batch):
            return batch
        ahead, self._gap_ahead = self._gap_ahead, False
        batch = self._in_time(batch)
        joined = batch if self._last is None or not len(batch) else EventBatch.concat([self._last, batch])
        drop = repeated(joined)[len(joined) - len(batch) :]
        self.digested.duplicates += int(drop.sum())
        other = _of_other_kind(batch, self._kinds)
        self.digested.other_kinds += int((other & ~drop).sum())
        drop |= other
        if bool(drop.any()):
            batch = self._without(batch, drop)
        if self._thinner is not None and len(batch):
            batch = self._thinned(batch, self._thinner)
        if not len(batch):
            self._gap_ahead |= ahead
            return batch
        self._last = batch.take(slice(len(batch) - 1, None))
        self.digested.launches += len(batch)
        return _with_gap(batch) if ahead else batch

    def _thinned(self, batch: EventBatch, thinner: BusyThinner) -> EventBatch:
        fine = (batch.kind != int(KernelKind.KERNEL)) & (batch.kind != int(KernelKind.GRAPH_LAUNCH))
        kept, weight = thinner.thin(fine, batch.weight, self._utilisation())
        self.digested.thinned += int((~kept).sum())
        return self._without(batch.replace(weight=weight), ~kept)

    def _in_time(self, batch: EventBatch) -> EventBatch:
        """Leave out what belongs before a launch that was given out already."""
        if self._last is None:
            return batch
        before = (batch.process == self._last.process[0]) & (batch.correlation < self._last.correlation[0])
        before &= batch.correlation != 0
        count = int(before.sum())
        if not count:
            return batch
        self.digested.late += count
        return self._without(batch, before, gap=True)

    def _without(self, batch: EventBatch, drop: NDArray[np.bool_], *, gap: bool = False) -> EventBatch:
        """The other rows; a dropped row's gap (or every dropped row, with `gap`) marks the row behind it."""
        lost = (batch.gap | gap) & drop
        batch = batch.replace(gap=batch.gap & ~drop)
        keep = ~drop
        if bool(lost.any()):
            xp = array_namespace(batch.seq)
            places = xp.flatnonzero(keep)
            behind = xp.searchsorted(places, xp.flatnonzero(lost))
            self._gap_ahead |= bool((behind == len(places)).any())
            batch.gap[places[behind[behind < len(places)]]] = True
        return batch.take(keep)


def _of_other_kind(batch: EventBatch, kinds: tuple[KernelKind, ...]) -> NDArray[np.bool_]:
    wanted: NDArray[np.bool_] = batch.kind == int(kinds[0])
    for kind in kinds[1:]:
        wanted |= batch.kind == int(kind)
    return np.logical_not(wanted)


def _with_gap(batch: EventBatch) -> EventBatch:
    gap = batch.gap.copy()
    gap[0] = True
    return batch.replace(gap=gap)


def to_device(batch: EventBatch) -> EventBatch:
    """The batch's columns on the GPU, as cupy arrays; everything in this module then runs there."""
    import cupy  # noqa: PLC0415 - optional extra `gpu`

    return EventBatch(**{field.name: cupy.asarray(getattr(batch, field.name)) for field in fields(batch)})
