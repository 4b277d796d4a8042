"""Time as a dependency: whatever is timed is given a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time for protocol decisions, monotonic time for durations."""

    def now_s(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never goes back."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_s(self) -> float:
        """Seconds since the Unix epoch."""
        return time.time()

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never goes back."""
        return time.monotonic_ns()


class ManualClock:
    """A clock that a test or a simulation moves by hand; one hand for both readings."""

    def __init__(self, start_s: float = 1_750_000_000.0) -> None:
        self._now_ns = round(start_s * 1e9)
        self._set_ns = 0

    def now_s(self) -> float:
        """Seconds since the Unix epoch."""
        return (self._now_ns + self._set_ns) / 1e9

    def monotonic_ns(self) -> int:
        """Nanoseconds of a clock that never goes back."""
        return self._now_ns

    def advance(self, seconds: float) -> None:
        """Move both readings forward by `seconds` >= 0."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back: {seconds} s")
        self._now_ns += round(seconds * 1e9)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward, or back when negative; the monotonic reading does not notice."""
        self._set_ns += round(seconds * 1e9)
