"""Arithmetic of half-open intervals given as two arrays, starts and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Times = NDArray[np.int64]


def union(start: Times, end: Times) -> tuple[Times, Times]:
    """The intervals that together cover the same time, disjoint and sorted."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.ones(len(start), dtype=np.bool_)
    first[1:] = start[1:] > reach[:-1]
    last = np.append(np.flatnonzero(first)[1:] - 1, len(start) - 1)
    return start[first], reach[last]


def covered(start: Times, end: Times) -> int:
    """Time covered by at least one interval."""
    starts, ends = union(start, end)
    return int((ends - starts).sum())


def shared(first: tuple[Times, Times], second: tuple[Times, Times]) -> int:
    """Time covered by both sets of intervals."""
    both = covered(np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]]))
    return covered(*first) + covered(*second) - both


def overlap_with(start: Times, end: Times, cover: tuple[Times, Times]) -> Times:
    """For each interval, how much of it a disjoint sorted cover (of `union`) covers."""
    starts, ends = cover
    if not len(starts):
        return np.zeros(len(start), dtype=np.int64)
    total = np.concatenate([[0], np.cumsum(ends - starts)])

    def until(moment: Times) -> Times:
        place = np.searchsorted(starts, moment, side="right")
        inside = np.minimum(moment, ends[np.maximum(place - 1, 0)]) - starts[np.maximum(place - 1, 0)]
        return np.where(place > 0, total[np.maximum(place - 1, 0)] + inside, 0)

    return until(end) - until(start)


def depth(start: Times, end: Times) -> tuple[Times, Times]:
    """How long exactly d intervals ran at once: depths d >= 1 and their times."""
    edges = np.concatenate([start, end])
    steps = np.concatenate([np.ones(len(start), dtype=np.int64), -np.ones(len(end), dtype=np.int64)])
    order = np.lexsort((steps, edges))
    level = np.cumsum(steps[order])[:-1]
    length = np.diff(edges[order])
    if not len(level):
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    times = np.bincount(np.maximum(level, 0), weights=length).astype(np.int64)
    deep = np.flatnonzero(times)
    deep = deep[deep > 0]
    return deep.astype(np.int64), times[deep]
