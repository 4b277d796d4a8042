"""Unions of arcs: which positions of all cycles were sampled, without an entry a position.

With stride S the samples of a window visit c, c + S, c + 2S ... modulo k. Numbered in that order, the
positions of one residue class modulo gcd(S, k) form a ring of k / gcd(S, k), and a window's samples are one
contiguous arc on it. So a window of a client is two numbers, and coverage is the length of a union of arcs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.sim.scenario import Scenario

_LENGTH_BITS = np.uint64(24)
_LENGTH_MASK = np.uint64((1 << 24) - 1)
_START_LIMIT = 1 << 40


@dataclass(frozen=True, eq=False)
class Rings:
    """Where the rings of all (application, counter group, residue class) lie on one line.

    Each ring is followed by one place that is never sampled, so arcs of two rings never touch.
    """

    residues: NDArray[np.uint64]
    """gcd(S, k): rings of each (application, group)."""
    length: NDArray[np.uint64]
    """k / gcd(S, k): positions of each of these rings."""
    start: NDArray[np.uint64]
    """First place of each application's rings, group by group; shape (applications, groups)."""
    edges: NDArray[np.uint64]
    """Ends of the applications on the line, from 0; shape (applications + 1,)."""

    @classmethod
    def of(cls, scenario: Scenario) -> Rings:
        """Lay out a scenario; the interval S must be a whole number."""
        stride = int(scenario.sampling.interval)
        if stride != scenario.sampling.interval:
            raise ConfigError(
                f"interval = {scenario.sampling.interval}: a stride is a whole number.",
                remedy="Give a whole interval or the sampler 'jitter'.",
            )
        residues = np.gcd(stride, scenario.workload.launches)
        length = scenario.workload.launches // residues
        room = residues * (length + 1)
        groups = scenario.sampling.counter_groups
        edges = np.concatenate(([0], np.cumsum(room * groups)))
        if edges[-1] >= _START_LIMIT or (length > int(_LENGTH_MASK)).any():
            raise ConfigError(
                f"launches: {edges[-1]} positions are more than the session mode holds.",
                remedy="Use the mode poisson.",
            )
        start = edges[:-1, None] + room[:, None] * np.arange(groups)
        return cls(
            residues.astype(np.uint64),
            length.astype(np.uint64),
            start.astype(np.uint64),
            edges.astype(np.uint64),
        )


class Union:
    """A growing union of arcs, kept as disjoint intervals in order."""

    def __init__(self, rings: Rings) -> None:
        self._edges = rings.edges
        self._intervals = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._intervals)

    def add(self, start: NDArray[np.uint64], length: NDArray[np.uint64]) -> None:
        """Add arcs that do not cross the end of their ring."""
        if len(self._intervals) + len(start) == 0:
            return
        packed = np.concatenate((self._intervals, start << _LENGTH_BITS | length))
        packed.sort()
        first = packed >> _LENGTH_BITS
        reach = packed  # from here on, the end of everything so far
        reach &= _LENGTH_MASK
        reach += first
        np.maximum.accumulate(reach, out=reach)
        last = np.flatnonzero(first[1:] > reach[:-1])
        begins = first[np.concatenate(([0], last + 1))]
        self._intervals = begins << _LENGTH_BITS | (reach[np.append(last, len(reach) - 1)] - begins)

    def covered(self) -> NDArray[np.int64]:
        """Covered cells of each application."""
        total = np.concatenate(([0], np.cumsum(self._intervals & _LENGTH_MASK))).astype(np.int64)
        place = np.searchsorted(self._intervals, self._edges << _LENGTH_BITS)
        return np.diff(total[place])

    def marks(self, places: int) -> NDArray[np.bool_]:
        """Every place of the line, for tests of small scenarios."""
        seen = np.zeros(places, np.bool_)
        for packed in self._intervals.tolist():
            first = packed >> int(_LENGTH_BITS)
            seen[first : first + (packed & int(_LENGTH_MASK))] = True
        return seen


def cut(
    start: NDArray[np.uint64],
    length: NDArray[np.uint64],
    ring: NDArray[np.uint64],
    ring_length: NDArray[np.uint64],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Arcs split where they cross the end of their ring.

    Args:
        start: place of the first sample, `ring` or later.
        length: samples, at most `ring_length`.
        ring: first place of the ring.
        ring_length: its positions.

    Returns:
        Starts and lengths of arcs that lie inside their rings.
    """
    end = ring + ring_length
    over = start + length > end
    crossing = np.flatnonzero(over)
    if len(crossing) == 0:
        return start, length
    rest = (start + length - end)[crossing]
    kept = length.copy()
    kept[crossing] -= rest
    return np.concatenate((start, ring[crossing])), np.concatenate((kept, rest))
