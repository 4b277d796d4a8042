"""Random numbers that depend on a client's number and the time only, never on who computes them.

A counter goes through the SplitMix64 finaliser (Steele, Lea and Flood 2014, Fast Splittable Pseudorandom
Number Generators), so blocks of clients can be drawn anywhere, in any order, with the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_GOLDEN = 0x9E37_79B9_7F4A_7C15
_FIRST = np.uint64(0xBF58_476D_1CE4_E5B9)
_SECOND = np.uint64(0x94D0_49BB_1331_11EB)
_MASK = (1 << 64) - 1
HALF = np.uint64(32)
LOW = np.uint64(0xFFFF_FFFF)


def scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser on each value, in place."""
    values ^= values >> np.uint64(30)
    values *= _FIRST
    values ^= values >> np.uint64(27)
    values *= _SECOND
    values ^= values >> np.uint64(31)
    return values


def stream(seed: int, purpose: int) -> np.uint64:
    """Start of one stream of numbers; `purpose` keeps those of one seed apart."""
    start = np.array([(seed * _GOLDEN + purpose * 0xD1B5_4A32_D192_ED03 + 1) & _MASK], np.uint64)
    return np.uint64(scramble(start)[0])


def by_number(start: np.uint64, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """64 random bits for each number of a stream."""
    return scramble(numbers * np.uint64(_GOLDEN) + start)


def at(states: NDArray[np.uint64], time: int) -> NDArray[np.uint64]:
    """64 random bits of each state at an integer time."""
    return scramble(states + np.uint64(((time + 1) * _GOLDEN) & _MASK))


def below(bits: NDArray[np.uint64], limit: NDArray[np.uint64] | np.uint64) -> NDArray[np.uint64]:
    """Integers below `limit` (at most 2^32) from 32 random bits each (multiply and shift)."""
    return (bits * limit) >> HALF


@dataclass(frozen=True, eq=False)
class Chooser:
    """Draws rows with given probabilities from 32 random bits each (alias method, Walker 1977)."""

    rows: np.uint64
    keep: NDArray[np.uint64]
    alias: NDArray[np.uint64]

    @classmethod
    def of(cls, share: NDArray[np.float64]) -> Chooser:
        """Tables for these probabilities, which sum to 1."""
        rows = len(share)
        scaled = share * rows
        alias = np.arange(rows)
        small = [int(row) for row in np.flatnonzero(scaled < 1)]
        large = [int(row) for row in np.flatnonzero(scaled >= 1)]
        while small and large:
            low, high = small.pop(), large[-1]
            alias[low] = high
            scaled[high] -= 1 - scaled[low]
            if scaled[high] < 1:
                small.append(large.pop())
        for row in small + large:
            scaled[row] = 1
        keep = np.minimum(scaled * 2**32, 2**32).astype(np.uint64)
        return cls(np.uint64(rows), keep, alias.astype(np.uint64))

    def draw(self, bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """A row for each of these 32-bit numbers."""
        product = bits * self.rows
        row = product >> HALF
        if (self.keep == LOW + np.uint64(1)).all():
            return row
        return np.where((product & LOW) < self.keep[row], row, self.alias[row])
