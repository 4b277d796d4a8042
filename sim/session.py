"""Session mode: what every client does in every window.

A window lasts O seconds. In it a client runs one application, watches one group of counters, and samples
from a fresh offset. All draws depend on (seed, client, window) only: any block of clients can be computed
anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penrose_ray.sim.arcs import Rings, Union, cut
from penrose_ray.sim.hashing import HALF, LOW, Chooser, at, below, by_number, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penrose_ray.sim.scenario import Scenario

_CLIENTS, _BUSY, _THINNING = 1, 2, 3
_MIXER = np.uint64(0x9E37_79B9_7F4A_7C15)
_BLOCK = 16_384
"""Clients computed at a time: their columns stay in the cache."""


class Visits(NamedTuple):
    """One window of a block of clients; one row a busy client."""

    client: NDArray[np.int64]
    """Position inside the block."""
    app: NDArray[np.uint64]
    group: NDArray[np.uint64]
    samples: NDArray[np.uint64]
    extra: NDArray[np.uint64]
    """1 where that is one sample more than the whole part of the mean."""
    phase: NDArray[np.uint64]
    """32 random bits that place the first sample."""

    def part(self, rows: NDArray[np.intp]) -> Visits:
        """Some of the rows."""
        return Visits(
            self.client[rows],
            self.app[rows],
            self.group[rows],
            self.samples[rows],
            self.extra[rows],
            self.phase[rows],
        )


@dataclass(frozen=True, eq=False)
class Block:
    """Clients `first` to `first + count` of a fleet."""

    scenario: Scenario
    seed: int
    first: int
    count: int
    chooser: Chooser
    states: NDArray[np.uint64]
    busy_states: NDArray[np.uint64]

    @classmethod
    def of(
        cls, scenario: Scenario, seed: int, first: int, count: int, chooser: Chooser | None = None
    ) -> Block:
        """Prepare these clients."""
        numbers = np.arange(first, first + count, dtype=np.uint64)
        return cls(
            scenario,
            seed,
            first,
            count,
            chooser or Chooser.of(scenario.share),
            by_number(stream(seed, _CLIENTS), numbers),
            by_number(stream(seed, _BUSY), numbers),
        )

    def visits(self, window: int) -> Visits:
        """What these clients do in a window."""
        scenario, sampling = self.scenario, self.scenario.sampling
        bits = at(self.states, window)
        client = np.arange(self.count)
        if scenario.load_form == "on_off":
            busy = (at(self.busy_states, window) >> HALF) < np.uint64(round(scenario.load * 2**32))
            client = np.flatnonzero(busy)
            bits = bits[client]
        phase = bits & LOW
        app = self.chooser.draw(self._application_bits(bits, client, window))
        group = self._group(int(window * sampling.reset_s // sampling.rotation_s))
        if scenario.load_form == "on_off":
            group = group[client]
        whole, extra = self._samples(app, phase)
        return Visits(client, app, group, whole + extra, extra, phase)

    @cached_property
    def _first_group(self) -> NDArray[np.uint64]:
        return self.states % np.uint64(self.scenario.sampling.counter_groups)

    def _group(self, turn: int) -> NDArray[np.uint64]:
        """The counter group that each client watches after so many turns."""
        groups = np.uint64(self.scenario.sampling.counter_groups)
        group = self._first_group + np.uint64(turn) % groups
        np.subtract(group, groups, out=group, where=group >= groups)
        return group

    def _application_bits(
        self, bits: NDArray[np.uint64], client: NDArray[np.int64], window: int
    ) -> NDArray[np.uint64]:
        stay = round(self.scenario.dwell_s / self.scenario.sampling.reset_s)
        if stay <= 1:
            return bits >> HALF
        epoch = (np.uint64(window) + (self.states[client] >> HALF) % np.uint64(stay)) // np.uint64(stay)
        return by_number(stream(self.seed, _CLIENTS), self.busy_states[client] ^ epoch) >> HALF

    def _samples(
        self, app: NDArray[np.uint64], phase: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Samples of a window: the mean's whole part, and one more as often as its fraction asks."""
        whole, limit, alike = self._per_window
        if alike:
            each = np.full(len(app), whole[0], np.uint64)
            if not limit[0]:
                return each, np.zeros(len(app), np.uint64)
            return each, (_again(phase) < limit[0]).astype(np.uint64)
        return whole[app], (_again(phase) < limit[app]).astype(np.uint64)

    @cached_property
    def _per_window(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64], bool]:
        """Whole part and fraction (of 2^32) of a window's samples, and whether all applications agree."""
        mean = self.scenario.samples_per_window
        whole = np.floor(mean)
        limit = ((mean - whole) * 2**32).astype(np.uint64)
        return whole.astype(np.uint64), limit, bool((mean == mean[0]).all())


def _again(phase: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Other 32 random bits from those of the phase."""
    return phase * _MIXER >> np.uint64(17) & LOW


def blocks(scenario: Scenario, seed: int, first: int = 0, count: int | None = None) -> Iterator[Block]:
    """The fleet, or a part of it, in blocks of a size that suits the cache."""
    end = scenario.clients if count is None else first + count
    chooser = Chooser.of(scenario.share)
    for start in range(first, end, _BLOCK):
        yield Block.of(scenario, seed, start, min(_BLOCK, end - start), chooser)


def arcs_of(visits: Visits, rings: Rings) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Arcs of a stride sampler's window, inside their rings."""
    app = visits.app
    ring_length = rings.length[app]
    product = visits.phase * ring_length
    groups = np.uint64(rings.start.shape[1])
    ring = rings.start.reshape(-1)[app * groups + visits.group if groups > 1 else app]
    if (rings.residues > 1).any():
        residue = below(product & LOW, rings.residues[app])
        ring = ring + residue * (ring_length + np.uint64(1))
    length = np.minimum(visits.samples, ring_length)
    start, length = cut(ring + (product >> HALF), length, ring, ring_length)
    if length.min(initial=1):
        return start, length
    some = length > 0
    return start[some], length[some]


class StrideCoverage:
    """Cells that a fleet with the stride sampler has covered."""

    def __init__(self, scenario: Scenario) -> None:
        self._rings = Rings.of(scenario)
        self._union = Union(self._rings)
        self._arcs: list[tuple[NDArray[np.uint64], NDArray[np.uint64]]] = []
        self._cells = scenario.cells
        self._covered = np.zeros(len(self._cells), np.int64)

    def take(self, visits: Visits) -> None:
        """One block's window; what runs an application that is covered to the last cell adds nothing."""
        open_ = self._covered < self._cells
        if not open_.all():
            visits = visits.part(np.flatnonzero(open_[visits.app]))
        if len(visits.app):
            self._arcs.append(arcs_of(visits, self._rings))

    def end_window(self, _window: int) -> NDArray[np.int64]:
        """All blocks were taken; covered cells of each application."""
        if self._arcs:
            starts, lengths = zip(*self._arcs, strict=True)
            self._arcs.clear()
            self._union.add(np.concatenate(starts), np.concatenate(lengths))
            self._covered = self._union.covered()
        return self._covered.copy()


class JitterCoverage:
    """Cells that a fleet with the jitter sampler has covered.

    A random gap makes positions independent, so a window's samples of an application thin what is left of it
    binomially.
    """

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self._seed = seed
        self._groups = scenario.sampling.counter_groups
        self._positions = np.repeat(scenario.workload.launches, self._groups)
        self._left = self._positions.copy()
        self._samples = np.zeros(len(self._left), np.int64)

    def take(self, visits: Visits) -> None:
        """One block's window."""
        cycle = (visits.app * np.uint64(self._groups) + visits.group).astype(np.int64)
        self._samples += np.bincount(cycle, visits.samples, len(self._samples)).astype(np.int64)

    def end_window(self, window: int) -> NDArray[np.int64]:
        """All blocks were taken; covered cells of each application."""
        rng = np.random.default_rng([self._seed, _THINNING, window])
        with np.errstate(divide="ignore"):  # a cycle of one position is hit by any sample
            missed = self._samples * np.log1p(-1 / self._positions)
        missed[self._samples == 0] = 0
        self._left -= rng.binomial(self._left, -np.expm1(missed))
        self._samples[:] = 0
        covered = (self._positions - self._left).reshape(-1, self._groups)
        return np.asarray(covered.sum(axis=1), np.int64)
