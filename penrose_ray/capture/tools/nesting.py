"""Which interval of a thread encloses a moment: intervals nest, as calls do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


def parents(start: Times, end: Times) -> Times:
    """For intervals sorted by start (longer first): the innermost enclosing one, -1 for none."""
    found = np.full(len(start), -1, dtype=np.int64)
    open_: list[int] = []
    ends = end.tolist()
    for index, (begin, finish) in enumerate(zip(start.tolist(), ends, strict=True)):
        while open_ and (ends[open_[-1]] <= begin or ends[open_[-1]] < finish):
            open_.pop()
        if open_:
            found[index] = open_[-1]
        open_.append(index)
    return found


class Nesting:
    """Intervals of many threads; rows keep their numbers."""

    def __init__(self, thread: Times, start: Times, end: Times) -> None:
        self._order = np.lexsort((-end, start, thread))
        self._thread, self._start, self._end = thread[self._order], start[self._order], end[self._order]
        self._parent = np.full(len(thread), -1, dtype=np.int64)
        for one in np.unique(self._thread):
            low, high = np.searchsorted(self._thread, [one, one + 1])
            own = parents(self._start[low:high], self._end[low:high])
            self._parent[low:high] = np.where(own >= 0, own + low, -1)

    def enclosing(self, thread: Times, moment: Times) -> Times:
        """Row of the innermost interval around each moment, -1 for none."""
        found = np.full(len(moment), -1, dtype=np.int64)
        for one in np.unique(thread):
            low, high = np.searchsorted(self._thread, [one, one + 1])
            rows = np.flatnonzero(thread == one)
            place = np.searchsorted(self._start[low:high], moment[rows], side="right") - 1
            found[rows] = np.where(place >= 0, place + low, -1)
        while True:
            outside = found >= 0
            outside[outside] = self._end[found[outside]] < moment[outside]
            if not outside.any():
                break
            found[outside] = self._parent[found[outside]]
        return self._rows(found)

    def outermost(self, rows: Times) -> Times:
        """The outermost interval around each row (-1 stays -1)."""
        place = np.empty(len(self._order), dtype=np.int64)
        place[self._order] = np.arange(len(self._order))
        found = np.where(rows >= 0, place[rows], -1) if len(place) else rows
        while True:
            inner = found >= 0
            inner[inner] = self._parent[found[inner]] >= 0
            if not inner.any():
                break
            found[inner] = self._parent[found[inner]]
        return self._rows(found)

    def _rows(self, places: Times) -> Times:
        return np.where(places >= 0, self._order[places], -1) if len(self._order) else places
