"""Processes that have ended, until all of their launches are delivered."""

from __future__ import annotations

from collections import deque


class ProcessEnds:
    """Tells each end once, when the stream has come as far as its process did."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, int]] = deque()

    def note(self, process: int, next_seq: int) -> None:
        """A process has ended, whose launches all have numbers below `next_seq`; ends come in order."""
        self._ends.append((next_seq, process))

    def passed(self, next_seq: int) -> list[int]:
        """Processes that ended before the launch `next_seq`, which is the next one to be delivered."""
        told = []
        while self._ends and self._ends[0][0] <= next_seq:
            told.append(self._ends.popleft()[1])
        return told
