"""Which coming launches are to be measured, and what of them."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.histogram import Counter

NEVER = 1 << 63
"""A sequence number that no launch reaches."""


class ArmedLaunches:
    """Armed sequence numbers in order, each with the columns of `offered` that are to be read."""

    def __init__(self, offered: tuple[Counter, ...]) -> None:
        self._column = {counter: index for index, counter in enumerate(offered)}
        self._heap: list[tuple[int, tuple[int, ...]]] = []
        self.next = NEVER
        """The least armed sequence number; compare before calling `take`."""

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, launches: Sequence[int], counters: Sequence[Counter], *, first: int) -> int:
        """Arm `launches` from `first` on and return how many came too late; unknown counters are left out."""
        columns = tuple(self._column[counter] for counter in counters if counter in self._column)
        coming = [(int(launch), columns) for launch in launches if launch >= first]
        if columns:
            self._heap.extend(coming)
            heapq.heapify(self._heap)
            self._advance()
        return len(launches) - len(coming)

    def take(self, before: int) -> list[tuple[int, tuple[int, ...]]]:
        """Remove and return the armed launches below `before`, ascending."""
        taken = []
        while self.next < before:
            taken.append(heapq.heappop(self._heap))
            self._advance()
        return taken

    def clear(self) -> None:
        """Disarm everything."""
        self._heap.clear()
        self._advance()

    def _advance(self) -> None:
        self.next = self._heap[0][0] if self._heap else NEVER
