"""Records of one process as they complete, on their way into a queue as launches: in order, once each."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.guard import busy_share
from penrose_ray.capture.processor import Digested, EventProcessor

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.capture.events import EventBatch
    from penrose_ray.capture.guard import BusyThinner
    from penrose_ray.capture.queued import LaunchQueue
    from penrose_ray.capture.tally import Tally

COMPLETION_SPREAD = 4096
"""Launches that wait for those of other streams, which complete later."""
_IDS = 1 << 32
_HALF = 1 << 31


class LaunchOrder:
    """Sorts, filters and hands on; what comes too late is counted as dropped and leaves a gap.

    Correlation ids of CUDA are 32 bits wide and start anew after days. Here they go on counting, so that the
    order survives; a difference of less than half the range tells which way an id lies.

    Args:
        queue: where launches go; as many as it has room for may wait to be brought into order.
        tally: the source's account.
        hold: launches that wait for records of earlier ones.
        finish: completes a batch in order, for example with counters; it is also given what is held back.
        thinner: lets fine events pass beside kernels, fewer of them while the device is busy.
    """

    def __init__(
        self,
        queue: LaunchQueue,
        tally: Tally,
        *,
        hold: int,
        finish: Callable[[EventBatch, EventBatch | None], EventBatch] = lambda batch, _: batch,
        thinner: BusyThinner | None = None,
    ) -> None:
        self._queue = queue
        self._tally = tally
        self._finish = finish
        kinds = tuple(KernelKind) if thinner else (KernelKind.KERNEL,)
        self._thinner = thinner
        self._busy = math.nan
        self._processor = EventProcessor(
            hold=hold,
            capacity=queue.capacity,
            kinds=kinds,
            thinner=thinner,
            utilisation=lambda: self._busy,
        )
        self._latest = 0
        self._accounted = Digested()
        """What the account holds already of the processor's counts."""

    def feed(self, batch: EventBatch) -> None:
        """Take over records of the process, in any order; how busy they keep the device is noted."""
        if self._thinner is not None:
            kernels = batch.kind == KernelKind.KERNEL
            self._busy = busy_share(batch.start_ns[kernels], batch.end_ns[kernels])
        self._processor.feed(self._unwrapped(batch))

    def _unwrapped(self, batch: EventBatch) -> EventBatch:
        ids = batch.correlation.astype(np.int64)
        known = ids != 0
        if not known.any():
            return batch
        latest = self._latest or int(ids[known][0])
        away = (ids - latest + _HALF) % _IDS - _HALF
        counted = np.where(known & (latest + away > 0), latest + away, ids)
        self._latest = max(latest, int(counted.max()))
        return batch.replace(correlation=counted)

    def hand_on(self, *, last: bool = False) -> None:
        """Push what is ready onto the queue; with `last` what is held back too."""
        batch = self._processor.take(last=last)
        now, before = replace(self._processor.digested), self._accounted
        self._accounted = now
        self._tally.duplicates += now.duplicates - before.duplicates
        if now.late > before.late:  # their places are before this batch
            self._queue.skip(now.late - before.late)
        if batch is not None:
            self._queue.push(self._finish(batch, self._processor.held))
        if now.dropped > before.dropped:  # they came when the buffer was full, behind this batch
            self._queue.skip(now.dropped - before.dropped)

    def lose(self, launches: int) -> None:
        """Count launches whose records will never come, behind all that came so far."""
        self.hand_on(last=True)
        self._queue.skip(launches)
