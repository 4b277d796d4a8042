"""Reports on their way: kept until acknowledged, repeated byte for byte."""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penrose_ray.errors import RefusedReportError, SpoolError, TransportError
from penrose_ray.telemetry import CLIENT_REPORTS
from penrose_ray.transport.queue import MemoryQueue
from penrose_ray.transport.uploader import BusyError, StuckError

if TYPE_CHECKING:
    import random

    from penrose_ray.clock import Clock
    from penrose_ray.transport.pace import Pace
    from penrose_ray.transport.queue import Queue, Waiting
    from penrose_ray.transport.uploader import Uploader


_MOST_STUCK = 20
"""Failures of the service at one report until it is given up."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between tries: exponential with full jitter."""

    first_s: float = 0.2
    longest_s: float = 30.0


@dataclass(slots=True)
class OutboxCounts:
    """What became of the records."""

    sent: int = 0
    refused: int = 0
    retries: int = 0
    dropped: int = 0


class Outbox:
    """A bounded queue in front of an uploader. The oldest record goes first, and is the first dropped.

    Args:
        uploader: what sends.
        clock: monotonic for pauses; wall time for the age of what waits.
        most: records that the queue in memory holds; without meaning where `queue` is given.
        backoff: pauses after failures.
        rng: of pauses and of the pace; the machine's own by default.
        queue: where records wait; a `Spool` outlives the process.
        pace: when records go; without one, at once.
    """

    def __init__(
        self,
        uploader: Uploader,
        clock: Clock,
        *,
        most: int = 4096,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
        queue: Queue | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._uploader = uploader
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._rng = rng or secrets.SystemRandom()
        self._queue = MemoryQueue(most) if queue is None else queue
        self._pace = pace
        self._not_before_s = self._held_until_s = -math.inf
        self._pause_limit_s = self._backoff.first_s
        self._lock = threading.Lock()
        self._stuck: dict[bytes, int] = {}
        """How often the service has failed at a record."""
        self.counts = OutboxCounts()
        self.last_error: TransportError | RefusedReportError | SpoolError | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, record: bytes) -> None:
        """Queue a record; what has no room is dropped and counted."""
        now_s = self._monotonic_s()
        with self._lock:
            if not len(self._queue) and self._not_before_s <= now_s:
                self._not_before_s = now_s + self._gap_s()  # moments with nothing to send are not made up for
            try:
                self._queue.put(record, self._clock.now_s())
            except SpoolError as error:
                self.last_error = error
            self.counts.dropped = self._queue.dropped

    def hold(self, seconds: float) -> None:
        """Send nothing for so long, whatever is put."""
        self._held_until_s = self._monotonic_s() + seconds

    def flush(self) -> bool:
        """Send what is due, until the first failure.

        Returns:
            Whether the outbox is empty. After a failure nothing is tried before the pause is over.
        """
        while self._step():
            pass
        return not len(self)

    def _step(self) -> bool:
        """Send the first record if it is due; returns whether it went.

        Where the queue fails, nothing is lost: what could not be taken out goes again, and counts once.
        """
        if self._monotonic_s() < max(self._not_before_s, self._held_until_s):
            return False
        try:
            waiting = self._first()
            return waiting is not None and self._send(waiting)
        except SpoolError as error:
            self._pause(error)
            return False

    def _send(self, waiting: Waiting) -> bool:
        try:
            done = self._delivered(waiting.record)
        except StuckError as error:
            self._put_behind(waiting, error)
            return False
        if not done:
            return False
        self._stuck.pop(_mark(waiting), None)
        with self._lock:
            self._queue.remove(waiting.number)
            self._pause_limit_s = self._backoff.first_s
            self._not_before_s = self._monotonic_s() + self._gap_s()
        return True

    def _first(self) -> Waiting | None:
        with self._lock:
            waiting = self._queue.first(self._clock.now_s())
            self.counts.dropped = self._queue.dropped
        return waiting

    def _put_behind(self, waiting: Waiting, error: StuckError) -> None:
        """Let the others go first; a report that fails time and again is given up."""
        mark = _mark(waiting)
        times = self._stuck[mark] = self._stuck.get(mark, 0) + 1
        with self._lock:
            if times < _MOST_STUCK:
                self._queue.put_behind(waiting.number)
            else:
                self._queue.remove(waiting.number)
        if times >= _MOST_STUCK:
            del self._stuck[mark]
            self.counts.refused += 1
            CLIENT_REPORTS.add(step="refused")
        self._pause(error)

    def _delivered(self, record: bytes) -> bool:
        """Whether the record is done with; put() is not held up meanwhile.

        Raises:
            StuckError: the service fails at this record.
        """
        try:
            self._uploader.send(record)
        except RefusedReportError as error:
            self.counts.refused += 1
            CLIENT_REPORTS.add(step="refused")
            self.last_error = error
        except StuckError:
            raise
        except TransportError as error:
            self._pause(error)
            return False
        else:
            self.counts.sent += 1
            CLIENT_REPORTS.add(step="sent")
        return True

    def _monotonic_s(self) -> float:
        """A wall clock that is set must neither stop uploads nor let them go at once."""
        return self._clock.monotonic_ns() / 1e9

    def _gap_s(self) -> float:
        return self._pace.gap_s(self._rng) if self._pace else 0.0

    def _pause(self, error: TransportError | SpoolError) -> None:
        pause_s = max(self._rng.uniform(0, self._pause_limit_s), self._gap_s())
        if isinstance(error, BusyError):
            pause_s = max(pause_s, error.retry_after_s)
        with self._lock:
            self._not_before_s = self._monotonic_s() + pause_s
        self._pause_limit_s = min(2 * self._pause_limit_s, self._backoff.longest_s)
        self.counts.retries += 1
        CLIENT_REPORTS.add(step="retried")
        self.last_error = error


def _mark(waiting: Waiting) -> bytes:
    return hashlib.sha256(waiting.record).digest()
