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

from penrose_ray.snippet.grams import (
    MULTIPLIER,
    Launches,
    Tally,
    beginnings,
    grams,
    inside,
    lengths,
    power,
    tally,
    windows,
)

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
class _Found:
    """Grams of launches, tallied."""

    launches: Launches
    tally: Tally
    starts: NDArray[np.intp] | None
    """Row of each window that was tallied; None where all were."""

    def where(self, grams: NDArray[np.intp]) -> NDArray[np.int64]:
        """A row at which each gram starts."""
        rows = self.tally.rows.take(grams)
        return rows if self.starts is None else self.starts.take(rows)

    def everywhere(self, gram: int) -> NDArray[np.int64]:
        """All rows at which a gram starts."""
        rows = self.tally.rows_of(gram)
        return rows if self.starts is None else self.starts.take(rows)


@dataclass(frozen=True, slots=True)
class _Continuations:
    """Distinct grams as context and next kernel, ordered by context, the usual one last."""

    order: NDArray[np.intp]
    """Number of each gram in the tally."""
    context: NDArray[np.uint64]
    count: NDArray[np.int64]
    usual: NDArray[np.intp]
    """For each gram the row of the usual continuation of its context."""


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
    found = _found(launches, size)
    plain = found.tally
    for _ in range(_PASSES):
        places, lost = _losses(found, size)
        if len(places) == 0:
            break
        launches = _inserted(launches, places, lost)
        found = _found(launches, size)
    return Mended(launches, plain, found.tally)


def _found(launches: Launches, size: int) -> _Found:
    mask = inside(launches, size)
    starts = None if isinstance(mask, slice) else np.flatnonzero(mask)
    return _Found(launches, tally(windows(launches.hashes, size)[mask]), starts)


def _losses(found: _Found, size: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """Rows before which records are missing, ascending and once for each, and their name hashes."""
    doubtful, put_back, steps = _explained(found, size)
    if len(doubtful) == 0:
        return np.empty(0, np.int64), np.empty(0, np.uint64)
    rows = [found.everywhere(int(each)) for each in doubtful]
    which = np.repeat(np.arange(len(doubtful)), [len(each) for each in rows])
    ends = np.concatenate(rows) + (size - 1)
    order = np.argsort(ends, kind="stable")
    ends, which = ends[order], which[order]
    repeats = steps[which]
    step = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return np.repeat(ends, repeats), put_back[step, np.repeat(which, repeats)]


def _continuations(found: _Found, size: int) -> _Continuations:
    grams = found.tally
    rows = grams.rows if found.starts is None else found.starts.take(grams.rows)
    context = (grams.values - found.launches.hashes.take(rows + (size - 1))) * _INVERSE
    order = np.lexsort((grams.counts, context))
    ordered = context.take(order)
    first = beginnings(ordered[1:] != ordered[:-1])
    several = lengths(first, len(order))
    usual = (first + (several - 1)).repeat(several)
    return _Continuations(order, ordered, grams.counts.take(order), usual)


_INVERSE = np.uint64(pow(MULTIPLIER, -1, 1 << 64))


def _explained(found: _Found, size: int) -> tuple[NDArray[np.intp], NDArray[np.uint64], NDArray[np.intp]]:
    """Grams that a loss explains, the name hashes to put back (steps x grams) and how many of them."""
    known, grams, hashes = _continuations(found, size), found.tally, found.launches.hashes
    most = known.count.take(known.usual)
    doubt = (known.count <= _RARE * most) & (most >= _ONCE_AGAINST)
    doubt &= known.usual != np.arange(len(known.usual))
    rows = doubt.nonzero()[0]
    doubtful = known.order.take(rows)
    put_back = np.zeros((_MOST_LOST, len(rows)), np.uint64)
    steps = np.zeros(len(rows), np.intp)
    if len(rows) == 0:
        return doubtful, put_back, steps
    here, count = hashes.take(found.where(doubtful) + (size - 1)), grams.counts.take(doubtful)
    following = np.empty(len(rows), np.uint64)
    row = known.usual.take(rows)
    open_ = np.ones(len(rows), np.bool_)
    for step in range(_MOST_LOST):
        if step:
            place = known.context.searchsorted(following)
            open_ &= known.context.take(place, mode="clip") == following
            if not open_.any():
                break
            row = known.usual.take(place, mode="clip")
        usual = known.order.take(row)
        start = found.where(usual)
        put_back[step] = hashes.take(start + (size - 1))
        following = grams.values.take(usual) - hashes.take(start) * power(size - 1)
        target = following * _M + here
        place = grams.values.searchsorted(target)
        seen = grams.values.take(place, mode="clip") == target
        seen &= grams.counts.take(place, mode="clip") >= count
        seen &= open_
        steps[seen] = step + 1
        open_ &= ~seen
    good = steps.nonzero()[0]
    return doubtful.take(good), put_back[:, good], steps.take(good)


def _inserted(launches: Launches, places: NDArray[np.intp], lost: NDArray[np.uint64]) -> Launches:
    hashes = np.insert(launches.hashes, places, lost)
    starts = tuple(start + int(np.searchsorted(places, start, side="left")) for start in launches.starts)
    return Launches(hashes, starts)
