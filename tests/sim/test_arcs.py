"""The union of arcs against marking every position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.errors import ConfigError
from penrose_ray.sim.arcs import Rings, Union
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.session import Block, arcs_of
from penrose_ray.sim.workloads import Workload

if TYPE_CHECKING:
    from conftest import Fleets


def scenario_of(launches: list[int], interval: int, groups: int, clients: int) -> Scenario:
    apps = len(launches)
    workload = Workload(np.array(launches), np.full(apps, 1e-3), np.zeros(apps, np.int64))
    sampling = Sampling(
        interval=interval, sampler="stride", reset_s=37.0, counter_groups=groups, rotation_s=74.0
    )
    return Scenario(workload, np.full(apps, 1 / apps), clients=clients, load=0.5, sampling=sampling)


def visited(first: int, samples: int, stride: int, launches: int) -> set[int]:
    """Positions of a window, sample by sample."""
    return {(first + stride * step) % launches for step in range(samples)}


@given(
    launches=st.lists(st.integers(1, 60), min_size=1, max_size=5),
    interval=st.integers(1, 400),
    groups=st.integers(1, 3),
    seed=st.integers(0, 2**32),
)
def test_arcs_cover_as_many_cells_as_samples_mark(
    launches: list[int], interval: int, groups: int, seed: int
) -> None:
    scenario = scenario_of(launches, interval, groups, clients=7)
    rings = Rings.of(scenario)
    union, block = Union(rings), Block.of(scenario, seed, 0, 7)
    marked: list[set[tuple[int, int]]] = [set() for _ in launches]
    for window in range(4):
        visits = block.visits(window)
        union.add(*arcs_of(visits, rings))
        columns = (visits.app, visits.group, visits.samples, visits.phase)
        for app, group, samples, phase in zip(*(each.tolist() for each in columns), strict=True):
            first = first_position(int(phase), launches[app], interval)
            marked[app] |= {(group, at) for at in visited(first, samples, interval, launches[app])}
        assert union.covered().tolist() == [len(each) for each in marked]


def first_position(phase: int, launches: int, interval: int) -> int:
    """The position that 32 random bits stand for: a residue class and a place in its order of visits."""
    residues = int(np.gcd(interval, launches))
    place, rest = divmod(phase * (launches // residues), 2**32)
    return (rest * residues // 2**32 + place * interval) % launches


def test_every_position_is_the_first_one_equally_often() -> None:
    drawn = np.random.default_rng(3).integers(0, 2**32, 40_000)
    counts = np.bincount([first_position(int(each), 24, 9) for each in drawn], minlength=24)
    expected = len(drawn) / 24
    assert ((counts - expected) ** 2 / expected).sum() < 50  # chi squared with 23 degrees: p = 0.001


def test_intervals_stay_disjoint_and_grow_only() -> None:
    scenario = scenario_of([50, 31], 7, 1, clients=40)
    rings = Rings.of(scenario)
    union, block = Union(rings), Block.of(scenario, 9, 0, 40)
    before = np.zeros(2, np.int64)
    for window in range(30):
        union.add(*arcs_of(block.visits(window), rings))
        covered = union.covered()
        assert (covered >= before).all()
        assert (covered <= [50, 31]).all()
        assert union.marks(int(rings.edges[-1])).sum() == covered.sum()
        before = covered


def test_a_fixed_offset_stride_sees_one_residue_class_a_window(fleets: Fleets) -> None:
    # S = 10,000 and k = 1,000: a window of 200 samples shows one position; S = 10,007 shows 200
    for interval, wanted in ((10_000, 1), (10_007, 200)):
        scenario = fleets.alike(
            1, 1000, clients=1, sampling=Sampling(interval=interval, sampler="stride", reset_s=600.42)
        )
        union, rings = Union(Rings.of(scenario)), Rings.of(scenario)
        visits = Block.of(scenario, 4, 0, 1).visits(0)
        union.add(*arcs_of(visits._replace(samples=np.array([200], np.uint64)), rings))
        assert union.covered().tolist() == [wanted]


def test_a_stride_is_a_whole_number() -> None:
    whole = scenario_of([10], 3, 1, 1)
    broken = Scenario(whole.workload, whole.share, sampling=Sampling(interval=2.5, sampler="stride"))
    with pytest.raises(ConfigError, match="interval"):
        Rings.of(broken)
