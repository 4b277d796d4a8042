"""Grams: hashes of consecutive kernel names inside one stream.

Streams are laid one after the other, so that one pass over an array serves them all; a gram that would reach
from one stream into the next is left out. A stream shorter than a gram gives one gram of what it has.

The hash of names x_0 to x_{n-1} is the polynomial sum of x_j * M^(n-1-j) modulo 2^64: that of a gram's first
n-1 names (its context) follows from it by arithmetic, which mending relies on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

MULTIPLIER = 0x9E37_79B9_7F4A_7C15
_WORD = (1 << 64) - 1


@cache
def power(exponent: int) -> np.uint64:
    """M to the `exponent`, modulo 2^64."""
    return np.uint64(pow(MULTIPLIER, exponent, _WORD + 1))


@dataclass(frozen=True, slots=True)
class Launches:
    """Name hashes of a snippet, uint64, stream after stream; `starts` has the first row of each stream."""

    hashes: NDArray[np.uint64]
    starts: Sequence[int] = (0,)

    @property
    def ends(self) -> list[int]:
        """The row after each stream."""
        return [*self.starts[1:], len(self.hashes)]

    @property
    def shortest(self) -> int:
        """Launches of the shortest stream."""
        return min(end - start for start, end in zip(self.starts, self.ends, strict=True))


def beginning(launches: Launches, most: int) -> Launches:
    """About the first `most` launches, of each stream its share."""
    total = len(launches.hashes)
    if total <= most:
        return launches
    if len(launches.starts) == 1:
        return Launches(launches.hashes[:most])
    lengths = np.subtract(launches.ends, launches.starts)
    kept = -(-lengths * most // total)
    parts = [launches.hashes[start : start + each] for start, each in zip(launches.starts, kept, strict=True)]
    return Launches(np.concatenate(parts), (0, *np.cumsum(kept)[:-1].tolist()))


def by_stream(hashes: NDArray[np.uint64], streams: NDArray[np.generic] | None) -> Launches:
    """Bring launches of each stream together, in their order."""
    if streams is None or bool((streams == streams[0]).all()):
        return Launches(hashes)
    order = np.argsort(streams, kind="stable")
    kept = streams[order]
    changes = np.flatnonzero(kept[1:] != kept[:-1]) + 1
    return Launches(hashes[order], (0, *(int(change) for change in changes)))


def windows(hashes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Polynomial hash of every `size` rows in a row; `size` is at most the number of rows.

    Doubles the width as long as it fits, so that eight names take three steps.
    """
    width, result = 1, hashes
    while 2 * width <= size:
        count = len(result) - width
        shifted = result[:count] * power(width)
        shifted += result[width : width + count]
        result = shifted
        width *= 2
    count = len(hashes) - size + 1
    for offset in range(width, size):
        result = result[:count] * np.uint64(MULTIPLIER) + hashes[offset : offset + count]
    return result[:count]


def inside(launches: Launches, size: int) -> NDArray[np.bool_] | slice:
    """Which windows of `size` rows lie inside one stream; a slice of all where there is one stream."""
    if len(launches.starts) == 1:
        return slice(None)
    count = len(launches.hashes) - size + 1
    mask = np.ones(count, np.bool_)
    for start in launches.starts[1:]:
        mask[max(0, start - size + 1) : start] = False
    return mask


def grams(launches: Launches, size: int) -> NDArray[np.uint64]:
    """Hash of each gram, one for each place where it stands."""
    hashes = launches.hashes
    short = [
        windows(hashes[start:end], end - start)
        for start, end in zip(launches.starts, launches.ends, strict=True)
        if end - start < size
    ]
    if len(hashes) < size:
        return np.concatenate(short)
    whole = windows(hashes, size)[inside(launches, size)]
    return np.concatenate((whole, *short)) if short else whole


@dataclass(frozen=True, slots=True)
class Tally:
    """Distinct values, uint64, and how often each occurs."""

    values: NDArray[np.uint64]
    counts: NDArray[np.int64]
    rows: NDArray[np.int64]
    """A row where each stands."""
    ordered: NDArray[np.uint64]
    """All rows, in the order of their values, in the bits under `low`."""
    low: np.uint64

    def rows_of(self, which: int) -> NDArray[np.int64]:
        """All rows where the value with that number stands, ascending."""
        start = int(self.counts[:which].sum())
        part = self.ordered[start : start + int(self.counts[which])]
        return (part & self.low).astype(np.int64)


def tally(values: NDArray[np.uint64]) -> Tally:
    """Count values by their 48 leading bits (fewer past 65,535 rows): one sort of words that carry rows."""
    low = _row_bits(max(16, len(values).bit_length()))
    ordered = values & ~low
    ordered |= np.arange(len(values), dtype=np.uint64)
    ordered.sort()
    first = beginnings((ordered[1:] ^ ordered[:-1]) > low)
    rows = (ordered.take(first) & low).astype(np.int64)
    return Tally(values.take(rows), lengths(first, len(values)), rows, ordered, low)


@cache
def _row_bits(bits: int) -> np.uint64:
    return np.uint64((1 << bits) - 1)


def beginnings(changes: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Where runs begin, given for each place but the first whether it differs from the one before."""
    begins = np.empty(len(changes) + 1, np.bool_)
    begins[0] = True
    begins[1:] = changes
    return begins.nonzero()[0]


def lengths(first: NDArray[np.intp], total: int) -> NDArray[np.int64]:
    """Lengths of runs, given where they begin."""
    edges = np.empty(len(first) + 1, np.int64)
    edges[:-1] = first
    edges[-1] = total
    return edges[1:] - edges[:-1]


def scattered(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread polynomial hashes over all 64 bits, one to one (the finalizer of splitmix64, Steele 2014)."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return mixed ^ (mixed >> np.uint64(31))
