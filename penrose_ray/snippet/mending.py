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

_PASSES = 2
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
    order: NDArray[np.intp]
    """Number of each gram in the tally."""
    tally: Tally
    starts: NDArray[np.intp] | None
    """Row of each window that was tallied; None where all were."""

    def where(self, gram: int) -> NDArray[np.int64]:
        """Rows at which a gram starts."""
        rows = self.tally.rows_of(int(self.order[gram]))
        return rows if self.starts is None else self.starts[rows]


@dataclass(frozen=True, slots=True)
class Mended:
    """A window as it came and as it was before records were lost; the same where none were."""

    launches: Launches
    plain: Tally
    """Grams of the launches as they came."""
    grams: Tally
    """Grams of the mended launches."""


def mended(launches: Launches, size: int) -> Mended:
    """Put back what was evidently lost; `size` names make a gram."""
    if launches.shortest <= size:
        plain = tally(grams(launches, size))
        return Mended(launches, plain, plain)
    known = _continuations(launches, size)
    plain = known.tally
    for _ in range(_PASSES):
        places, lost = _losses(known, size)
        if len(places) == 0:
            break
        launches = _inserted(launches, places, lost)
        known = _continuations(launches, size)
    return Mended(launches, plain, known.tally)


def _losses(known: _Continuations, size: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Rows before which records are missing, ascending and once for each, and their name hashes."""
    doubtful, put_back, steps = _explained(known, size)
    if len(doubtful) == 0:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    rows = [known.where(each) for each in doubtful]
    which = np.repeat(np.arange(len(doubtful)), [len(each) for each in rows])
    ends = np.concatenate(rows) + (size - 1)
    order = np.argsort(ends, kind="stable")
    ends, which = ends[order], which[order]
    repeats = steps[which]
    step = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return np.repeat(ends, repeats), put_back[step, np.repeat(which, repeats)]


def _continuations(launches: Launches, size: int) -> _Continuations:
    hashes, mask = launches.hashes, inside(launches, size)
    found = tally(windows(hashes, size)[mask])
    starts = None if isinstance(mask, slice) else np.flatnonzero(mask)
    where = found.rows if starts is None else starts[found.rows]
    first, last = hashes.take(where), hashes.take(where + size - 1)
    context = (found.values - last) * _INVERSE
    order = np.lexsort((found.counts, context))
    ordered = context[order]
    ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], np.True_))
    usual = ends[np.searchsorted(ends, np.arange(len(order)))]
    return _Continuations(
        found.values[order],
        ordered,
        last[order],
        first[order],
        found.counts[order],
        usual,
        order,
        found,
        starts,
    )


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
