"""Mending: launches whose records were lost are put back where the rest of the window tells which they were.

A program repeats itself. Where the seven launches before a place are mostly followed by one kernel and here
by another, and that other one is what follows after the usual one, then the record of the usual one was lost
at this place. Scattered loss otherwise destroys a set of grams: each lost record takes eight true grams away
and adds seven false ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.snippet.grams import MULTIPLIER, Launches, Tally, grams, inside, power, tally, windows

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PASSES = 3
_MOST_LOST = 2
"""Launches in a row that are put back at one place."""
_RARE = 0.2
"""A continuation is in doubt when it occurs at most so often, relative to the usual one ..."""
_ONCE_AGAINST = 5
"""... which occurs at least so often."""
_M = np.uint64(MULTIPLIER)


@dataclass(frozen=True, slots=True)
class _Continuations:
    """Distinct grams as context and next kernel, ordered by context, the usual one last."""

    gram: NDArray[np.uint64]
    context: NDArray[np.uint64]
    last: NDArray[np.uint64]
    """Name hash of the gram's last kernel."""
    first: NDArray[np.uint64]
    """Name hash of the gram's first kernel."""
    count: NDArray[np.int64]
    usual: NDArray[np.intp]
    """For each gram the row of the usual continuation of its context."""
    tally: Tally
    """The grams as they were counted."""


def mended(launches: Launches, size: int) -> tuple[Launches, Tally]:
    """The launches with what was evidently lost put back, and their grams of `size` names."""
    for _ in range(_PASSES):
        if launches.shortest <= size:
            break
        at, mask = windows(launches.hashes, size), inside(launches, size)
        known = _continuations(launches.hashes, at, mask, size)
        doubtful, put_back, steps = _explained(known, size)
        if len(doubtful) == 0:
            return launches, known.tally
        places, lost = _losses(at, mask, known.gram[doubtful], put_back, steps)
        launches = _inserted(launches, places + size - 1, lost)
    return launches, tally(grams(launches, size))


def _losses(
    at: NDArray[np.uint64],
    mask: NDArray[np.bool_] | slice,
    wanted: NDArray[np.uint64],
    put_back: NDArray[np.uint64],
    steps: NDArray[np.intp],
) -> tuple[NDArray[np.intp], NDArray[np.uint64]]:
    """Where the `wanted` grams stand, ascending, and what to put back there, both repeated for each step."""
    order = np.argsort(wanted)
    nearest = order[np.minimum(np.searchsorted(wanted, at, sorter=order), len(wanted) - 1)]
    hit = wanted[nearest] == at
    if not isinstance(mask, slice):
        hit &= mask
    rows = np.flatnonzero(hit)
    which = nearest[rows]
    lost = np.concatenate([put_back[: steps[each], each] for each in which])
    return np.repeat(rows, steps[which]), lost


def _continuations(
    hashes: NDArray[np.uint64], at: NDArray[np.uint64], mask: NDArray[np.bool_] | slice, size: int
) -> _Continuations:
    found = tally(at[mask])
    where = found.rows if isinstance(mask, slice) else np.flatnonzero(mask)[found.rows]
    gram, count = found.values, found.counts
    first, last = hashes.take(where), hashes.take(where + size - 1)
    context = (gram - last) * _INVERSE
    order = np.lexsort((count, context))
    ordered = context[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], np.True_))
    usual = ends[np.searchsorted(ends, np.arange(len(order)))]
    return _Continuations(gram[order], ordered, last[order], first[order], count[order], usual, found)


_INVERSE = np.uint64(pow(MULTIPLIER, -1, 1 << 64))


def _explained(
    known: _Continuations, size: int
) -> tuple[NDArray[np.intp], NDArray[np.uint64], NDArray[np.intp]]:
    """Grams that a loss explains, the name hashes to put back (steps x grams) and how many of them."""
    most = known.count[known.usual]
    rare = (known.count <= _RARE * most) & (most >= _ONCE_AGAINST)
    doubtful = np.flatnonzero(rare & (known.usual != np.arange(len(known.usual))))
    put_back = np.zeros((_MOST_LOST, len(doubtful)), np.uint64)
    steps = np.zeros(len(doubtful), np.intp)
    row = known.usual[doubtful]
    open_ = np.ones(len(doubtful), np.bool_)
    sorted_grams = np.argsort(known.gram)
    for step in range(_MOST_LOST):
        put_back[step, open_] = known.last[row[open_]]
        following = known.gram[row] - known.first[row] * power(size - 1)
        target = following * _M + known.last[doubtful]
        found = _row_of(target, known.gram, sorted_grams)
        seen = open_ & (found >= 0) & (known.count[found] >= known.count[doubtful])
        steps[seen] = step + 1
        place = np.searchsorted(known.context, following)
        place = np.minimum(place, len(known.context) - 1)
        open_ &= ~seen & (known.context[place] == following)
        row = known.usual[place]
    good = np.flatnonzero(steps)
    return doubtful[good], put_back[:, good], steps[good]


def _row_of(
    wanted: NDArray[np.uint64], gram: NDArray[np.uint64], order: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Row of each wanted gram, -1 where there is none."""
    place = np.minimum(np.searchsorted(gram, wanted, sorter=order), len(gram) - 1)
    row = order[place]
    return np.where(gram[row] == wanted, row, -1)


def _inserted(launches: Launches, places: NDArray[np.intp], lost: NDArray[np.uint64]) -> Launches:
    hashes = np.insert(launches.hashes, places, lost)
    starts = tuple(start + int(np.searchsorted(places, start, side="left")) for start in launches.starts)
    return Launches(hashes, starts)
