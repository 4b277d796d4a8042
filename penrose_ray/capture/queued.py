"""The part that all sources fed by records share: a bounded queue, the account, arming."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING, Self

import numpy as np

from penrose_ray.capture.armed import ArmedLaunches
from penrose_ray.capture.ends import ProcessEnds
from penrose_ray.capture.events import Capabilities, EventBatch, SourceHealth
from penrose_ray.capture.tally import Tally
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.histogram import Counter

DEFAULT_CAPACITY = 1 << 18


def only_armed(batch: EventBatch, armed: ArmedLaunches) -> EventBatch:
    """The batch with counters on armed launches only; its `seq` must go up by 1."""
    if not len(batch):
        return batch
    first = int(batch.seq[0])
    shown = np.full(batch.counters.shape, np.nan)
    for launch, columns in armed.take(first + len(batch)):
        if launch >= first:
            shown[launch - first, list(columns)] = batch.counters[launch - first, list(columns)]
    return batch.replace(counters=shown)


class LaunchQueue:
    """Launches that wait for `poll`, at most `capacity`; numbers them, drops and marks gaps."""

    def __init__(self, width: int, capacity: int, tally: Tally) -> None:
        self._width = width
        self.capacity = capacity
        self._tally = tally
        self._parts: deque[EventBatch] = deque()
        self._rows = 0
        self._gap = False
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._rows

    @property
    def next_seq(self) -> int:
        """Number of the first launch that waits, else of the next one to come."""
        with self._lock:
            return int(self._parts[0].seq[0]) if self._parts else self._tally.seen

    def push(self, batch: EventBatch) -> None:
        """Append launches in their order; those that do not fit are dropped."""
        if not len(batch):
            return
        with self._lock:
            first = self._tally.seen
            self._tally.seen += len(batch)
            kept = batch.take(slice(0, self.capacity - self._rows))
            if len(kept):
                self._tally.gaps += int(kept.gap[0] and not self._gap) + int(kept.gap[1:].sum())
                gap = kept.gap.copy()
                gap[0] |= self._gap
                self._gap = False
                self._parts.append(kept.replace(seq=first + np.arange(len(kept)), gap=gap))
                self._rows += len(kept)
            self._drop(len(batch) - len(kept))

    def skip(self, launches: int) -> None:
        """Number launches that happened but were lost before they came here; 0 marks an uncounted loss."""
        with self._lock:
            self._tally.seen += launches
            self._tally.dropped += launches
            self._tally.gaps += not self._gap
            self._gap = True

    def _drop(self, launches: int) -> None:
        if launches:
            self._tally.dropped += launches
            self._tally.gaps += not self._gap
            self._gap = True

    def take(self, most: int) -> EventBatch:
        """Up to `most` launches with consecutive numbers."""
        with self._lock:
            parts: list[EventBatch] = []
            left = most
            while left > 0 and self._parts and not (parts and _apart(parts[-1], self._parts[0])):
                part = self._parts.popleft()
                if len(part) > left:
                    self._parts.appendleft(part.take(slice(left, None)))
                    part = part.take(slice(0, left))
                parts.append(part)
                left -= len(part)
            taken = most - left if parts else 0
            self._rows -= taken
            self._tally.delivered += taken
        return EventBatch.concat(parts) if parts else EventBatch.empty(self._width)

    def clear(self) -> None:
        """Drop all that waits."""
        with self._lock:
            self._drop(self._rows)
            self._parts.clear()
            self._rows = 0


def _apart(before: EventBatch, after: EventBatch) -> bool:
    return int(after.seq[0]) != int(before.seq[-1]) + 1


class QueuedSource(ABC):
    """EventSource whose back end hands over records: subclasses start it, stop it and pull from it.

    Args:
        counters: what the records measure.
        capacity: launches that may wait for `poll`.
        gauges: the records are readings of whole devices; they need no arming.
    """

    def __init__(
        self, counters: tuple[Counter, ...], *, capacity: int = DEFAULT_CAPACITY, gauges: bool = False
    ) -> None:
        self.counters = counters
        self.names: list[str] = []
        self.devices: list[str] = []
        self._name_ids: dict[str, int] = {}
        self._device_ids: dict[str, int] = {}
        self.tally = Tally()
        self.queue = LaunchQueue(len(counters), capacity, self.tally)
        self._armed = ArmedLaunches(counters)
        self._position = 0
        self._ends = ProcessEnds()
        self._gauges = gauges
        self._active = False
        self._stopped = False

    @abstractmethod
    def probe(self) -> Capabilities:
        """Whether this source works here, with reasons; never raises."""

    @abstractmethod
    def _start(self) -> None:
        """Begin to record; SourceError when that is impossible."""

    @abstractmethod
    def _stop(self) -> None:
        """End recording; called once for each `_start`."""

    def _pull(self, wanted: int) -> None:  # noqa: B027 - sources whose back end pushes by itself need none
        """Push what was recorded since the last call onto `queue`; `wanted` launches are enough for now."""

    def name_id(self, name: str) -> int:
        """The name's id, a new one when it is new."""
        known = self._name_ids.setdefault(name, len(self.names))
        if known == len(self.names):
            self.names.append(name)
        return known

    def device_id(self, model: str, identity: str = "") -> int:
        """The index of a device known by `identity` (or by its model alone), a new one when it is new."""
        key = identity or model
        known = self._device_ids.setdefault(key, len(self.devices))
        if known == len(self.devices):
            self.devices.append(model)
        return known

    @property
    def exhausted(self) -> bool:
        """True once stopped or closed and everything was delivered."""
        return self._stopped and not len(self.queue)

    def open(self) -> None:
        """Start recording."""
        if self._active:
            raise SourceError("This source is open already.", remedy="Close it first, or make another.")
        self._start()
        self._active, self._stopped = True, False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def poll(self, max_events: int) -> EventBatch:
        """At most `max_events` launches that were recorded."""
        if self._active:
            self._pull(max_events)
        batch = self.queue.take(max_events)
        if not len(batch):
            return batch
        self._position = int(batch.seq[-1]) + 1
        return batch if self._gauges else only_armed(batch, self._armed)

    def arm(self, launches: Sequence[int], counters: Sequence[Counter]) -> None:
        """Show the counters of these launches."""
        self.tally.late_arms += self._armed.add(launches, counters, first=self._position)

    def end_process(self, process: int) -> None:
        """Note that all launches of a process are on `queue` or lost."""
        self._ends.note(process, self.tally.seen)

    def ended(self) -> Sequence[int]:
        """Processes that have ended and of which no launch will come any more; each is told once."""
        return self._ends.passed(self.queue.next_seq)

    def health(self) -> SourceHealth:
        """The account so far."""
        return self.tally.snapshot()

    def stop(self) -> None:
        """End recording; what waits can still be polled, then the source is exhausted."""
        if self._active:
            self._pull(DEFAULT_CAPACITY)
            self._active = False
            self._stop()
        self._stopped = True

    def close(self) -> None:
        """End recording and drop what waits."""
        self.stop()
        self.queue.clear()
