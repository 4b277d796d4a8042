"""Interval arithmetic against counting every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.capture.tools import intervals
from penrose_ray.capture.tools.nesting import Nesting


def cells(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many intervals cover each of 200 nanoseconds."""
    line = np.zeros(200, dtype=int)
    for begin, finish in zip(start, end, strict=True):
        line[begin:finish] += 1
    return line


@pytest.mark.parametrize("seed", range(20))
def test_against_a_painted_line(seed: int) -> None:
    random = np.random.default_rng(seed)
    first = random.integers(0, 150, 30)
    second = random.integers(0, 150, 12)
    first_end, second_end = first + random.integers(0, 9, 30), second + random.integers(0, 20, 12)
    ours, theirs = cells(first, first_end), cells(second, second_end)
    assert intervals.covered(first, first_end) == (ours > 0).sum()
    assert intervals.shared((first, first_end), (second, second_end)) == ((ours > 0) & (theirs > 0)).sum()
    cover = intervals.union(second, second_end)
    right = [(theirs[a:b] > 0).sum() for a, b in zip(first, first_end, strict=True)]
    assert intervals.overlap_with(first, first_end, cover).tolist() == right
    depths, times = intervals.depth(first, first_end)
    assert dict(zip(depths.tolist(), times.tolist(), strict=True)) == {
        int(d): int((ours == d).sum()) for d in np.unique(ours) if d
    }


def test_innermost_and_outermost_on_their_own_thread() -> None:
    thread = np.array([1, 1, 1, 1, 2])
    start = np.array([0, 10, 12, 50, 0])
    end = np.array([100, 40, 20, 60, 100])
    nesting = Nesting(thread, start, end)
    where = np.array([15, 30, 45, 55, 101, 15])
    assert nesting.enclosing(np.array([1, 1, 1, 1, 1, 2]), where).tolist() == [2, 1, 0, 3, -1, 4]
    assert nesting.enclosing(np.array([3]), np.array([15])).tolist() == [-1]
    assert nesting.outermost(np.array([2, 3, 4, -1])).tolist() == [0, 0, 4, -1]
