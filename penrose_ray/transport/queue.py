"""Where reports wait: the interface, and the queue that lives in memory."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol


class Waiting(NamedTuple):
    """A record that waits; numbers grow and are never used again."""

    number: int
    record: bytes


class Queue(Protocol):
    """Records in their order; bounded, so the oldest is dropped and counted when there is no room."""

    dropped: int

    def __len__(self) -> int:
        """How many wait."""
        ...

    def put(self, record: bytes, now_s: float) -> None:
        """Keep a record.

        Raises:
            SpoolError: it cannot be kept.
        """
        ...

    def first(self, now_s: float) -> Waiting | None:
        """The oldest record that may still be sent."""
        ...

    def remove(self, number: int) -> None:
        """Forget a record, if it is still there.

        Raises:
            SpoolError: it is still there.
        """
        ...

    def put_behind(self, number: int) -> None:
        """Let all others go before a record, whose age stays what it is.

        Raises:
            SpoolError: it is where it was.
        """
        ...


class MemoryQueue:
    """A queue that ends with its process."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Waiting] = deque()
        self._next = 0
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, record: bytes, now_s: float) -> None:  # noqa: ARG002 - what waits here has no age
        """Keep a record; past the bound the oldest is dropped."""
        self._waiting.append(Waiting(self._next, record))
        self._next += 1
        if len(self._waiting) > self._most:
            self._waiting.popleft()
            self.dropped += 1

    def first(self, now_s: float) -> Waiting | None:  # noqa: ARG002
        """The oldest record."""
        return self._waiting[0] if self._waiting else None

    def remove(self, number: int) -> None:
        """Forget the record at the head, if it still has that number."""
        if self._waiting and self._waiting[0].number == number:
            self._waiting.popleft()

    def put_behind(self, number: int) -> None:
        """Let all others go before the record at the head, if it still has that number."""
        if self._waiting and self._waiting[0].number == number:
            self._waiting.append(self._waiting.popleft()._replace(number=self._next))
            self._next += 1
