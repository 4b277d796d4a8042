"""Reports on their way: kept until acknowledged, repeated byte for byte, never blocking the capture."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penrose_ray.errors import RefusedReportError, TransportError
from penrose_ray.transport.uploader import BusyError

if TYPE_CHECKING:
    from penrose_ray.clock import Clock
    from penrose_ray.transport.uploader import Uploader


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
    """A bounded queue in front of an uploader. The oldest record goes first, and is the first dropped."""

    def __init__(
        self,
        uploader: Uploader,
        clock: Clock,
        *,
        most: int = 4096,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._uploader = uploader
        self._clock = clock
        self._most = most
        self._backoff = backoff or Backoff()
        self._rng = rng or random.Random()  # noqa: S311 - spreads retries, hides nothing
        self._waiting: deque[bytes] = deque()
        self._not_before_s = 0.0
        self._pause_limit_s = self._backoff.first_s
        self.counts = OutboxCounts()
        self.last_error: TransportError | RefusedReportError | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, record: bytes) -> None:
        """Queue a record; past the bound the oldest one is dropped and counted."""
        self._waiting.append(record)
        if len(self._waiting) > self._most:
            self._waiting.popleft()
            self.counts.dropped += 1

    def flush(self) -> bool:
        """Send what is waiting, until the first failure.

        Returns:
            Whether the outbox is empty. After a failure nothing is tried before the pause is over.
        """
        while self._waiting and self._clock.now_s() >= self._not_before_s:
            try:
                self._uploader.send(self._waiting[0])
            except RefusedReportError as error:
                self.counts.refused += 1
                self.last_error = error
            except TransportError as error:
                self._pause(error)
                return False
            else:
                self.counts.sent += 1
            self._waiting.popleft()
            self._pause_limit_s = self._backoff.first_s
        return not self._waiting

    def _pause(self, error: TransportError) -> None:
        pause_s = self._rng.uniform(0, self._pause_limit_s)
        if isinstance(error, BusyError):
            pause_s = max(pause_s, error.retry_after_s)
        self._not_before_s = self._clock.now_s() + pause_s
        self._pause_limit_s = min(2 * self._pause_limit_s, self._backoff.longest_s)
        self.counts.retries += 1
        self.last_error = error
