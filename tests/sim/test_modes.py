"""The modes agree: formula, thinning, every client, every launch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.coverage import measured
from penrose_ray.sim.engine import Mode, simulate, simulate_clients
from penrose_ray.sim.expectation import expected_curve, expected_hours
from penrose_ray.sim.population import Mix, time_shares
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.session import StrideCoverage, arcs_of, blocks
from penrose_ray.sim.workloads import Group, grouped

if TYPE_CHECKING:
    from conftest import Fleets

SEEDS = 30


def paper(sampling: Sampling, apps: int = 200, clients: int = 10_000) -> Scenario:
    """The published table's applications, at a tenth of the fleet, with lengths prime to 10,007."""
    workload = grouped(apps, [Group(0.5, 0.5984, spread=0.1), Group(0.5, 1.3308, spread=0.1)])
    assert (np.gcd(10_007, workload.launches) == 1).all()
    return Scenario(workload, time_shares(Mix((0.5, 0.5)), workload), clients=clients, sampling=sampling)


@pytest.mark.parametrize("sampler", ["stride", "jitter"])
def test_every_client_agrees_with_the_formula_within_three_percent(sampler: str) -> None:
    scenario = paper(Sampling(interval=10_007, sampler=sampler))  # type: ignore[arg-type]
    poisson = Scenario(scenario.workload, scenario.share, clients=scenario.clients, sampling=Sampling(10_007))
    wanted = expected_hours(poisson, 0.99)
    found = simulate(scenario, "session", hours=wanted * 1.3, seed=2).hours_to(0.99)
    assert found == pytest.approx(wanted, rel=0.03)


@pytest.mark.parametrize("mode", ["poisson", "session"])
@pytest.mark.parametrize("groups", [1, 4])
def test_drawn_curves_follow_the_expected_one(mode: Mode, groups: int) -> None:
    scenario = paper(Sampling(counter_groups=groups, rotation_s=1200.0))
    curve = simulate(scenario, mode, hours=5.0 * groups, steps=60, seed=3)
    wanted = expected_curve(scenario, curve.hours)
    assert np.abs(curve.coverage - wanted.coverage).max() < 0.004
    assert (np.diff(curve.coverage) >= 0).all()


def test_thinning_varies_as_much_as_binomial_draws_do(fleets: Fleets) -> None:
    scenario = fleets.alike(5, 400, clients=1000)
    hours = expected_hours(scenario, 0.5)
    drawn = [
        simulate(scenario, "poisson", hours=hours, steps=7, seed=seed).coverage[-1] for seed in range(300)
    ]
    deviation = np.sqrt(0.25 / 2000)
    z = (np.array(drawn) - 0.5) / deviation
    assert abs(z.mean()) < 4 / np.sqrt(300)
    assert 0.85 < z.std() < 1.15


@pytest.mark.parametrize(("sampler", "interval"), [("stride", 211), ("stride", 200), ("jitter", 200)])
def test_every_launch_agrees_with_the_formula(fleets: Fleets, sampler: str, interval: int) -> None:
    # runs of applications follow one another at random, which scrambles a stride's phase: no aliasing here
    scenario = fleets.referee(sampler, interval)
    formula = Scenario(scenario.workload, scenario.share, clients=200, load=0.3, sampling=Sampling(interval))
    t99 = expected_hours(formula, 0.99)
    curves = [simulate(scenario, "event", hours=t99, steps=4, seed=seed).coverage for seed in range(SEEDS)]
    wanted = expected_curve(formula, np.linspace(0, t99, 5)).coverage
    errors = np.std(curves, axis=0, ddof=1)[1:] / np.sqrt(SEEDS)
    z = (np.mean(curves, axis=0) - wanted)[1:] / errors
    assert (np.abs(z) < 4).all(), z


@pytest.mark.parametrize("groups", [2])
def test_every_launch_agrees_with_the_formula_when_counters_rotate(fleets: Fleets, groups: int) -> None:
    scenario = fleets.referee("jitter", 50, counter_groups=groups, rotation_s=20.0)
    formula = Scenario(
        scenario.workload, scenario.share, clients=200, load=0.3,
        sampling=Sampling(50, counter_groups=groups),
    )  # fmt: skip
    t99 = expected_hours(formula, 0.99)
    found = [simulate(scenario, "event", hours=t99, steps=10, seed=seed).coverage[-1] for seed in range(8)]
    assert np.mean(found) == pytest.approx(0.99, abs=4 * np.std(found, ddof=1) / np.sqrt(8) + 2e-4)


@pytest.mark.parametrize(("windows_h", "wanted"), [(0.0, 0.605), (1 / 6, 0.865)])
def test_a_stride_without_resets_hides_positions_for_ever(
    fleets: Fleets, windows_h: float, wanted: float
) -> None:
    # one application of k = S = 200 launches on 200 GPUs, an hour: each client sees one position a window
    reset_s = windows_h * 3600 or 36_000.0
    scenario = fleets.alike(
        1, 200, clients=200, load=0.5, sampling=Sampling(interval=200, sampler="stride", reset_s=reset_s)
    )
    found = [
        simulate(scenario, "session", hours=max(1.0, windows_h), seed=seed).coverage[1:].max()
        if windows_h == 0
        else simulate(scenario, "session", hours=1 / 3, seed=seed).coverage[-1]
        for seed in range(SEEDS)
    ]
    theory = 1 - (1 - 1 / 200) ** (200 if windows_h == 0 else 400)
    assert np.mean(found) == pytest.approx(theory, abs=0.02)
    assert theory == pytest.approx(wanted, abs=0.03)


def test_a_jittered_gap_equals_poisson_where_a_stride_aliases(fleets: Fleets) -> None:
    stride = fleets.alike(20, 1000, clients=20, sampling=Sampling(sampler="stride"))
    jitter = fleets.alike(20, 1000, clients=20, sampling=Sampling(sampler="jitter"))
    hours = 23 * 600 / 3600
    visits = 1 / 20 * (1 - 1 / 1000) ** 200 + 19 / 20  # a window of a client misses a position
    wanted = 1 - visits ** (20 * 23)
    found = [simulate(jitter, "session", hours=hours, seed=seed).coverage[-1] for seed in range(SEEDS)]
    assert abs(np.mean(found) - wanted) < 4 * np.std(found, ddof=1) / np.sqrt(SEEDS)
    assert wanted == pytest.approx(0.985, abs=0.001)
    assert simulate(stride, "session", hours=hours, seed=1).coverage[-1] < 0.05


def test_the_same_fleet_gives_the_same_bits_in_1_2_and_8_parts() -> None:
    scenario = paper(Sampling(interval=10_007, sampler="stride", counter_groups=2), apps=50, clients=20_000)
    whole = simulate_clients(scenario, hours=2, seed=6).curve
    for parts in (1, 2, 8):
        share = scenario.clients // parts
        coverage = StrideCoverage(scenario)
        fleets_ = [list(blocks(scenario, 6, part * share, share)) for part in reversed(range(parts))]
        for window in range(12):
            for part in fleets_:
                for block in part:
                    coverage.take(block.visits(window))
            covered = coverage.end_window(window)
        assert (covered / scenario.cells == whole.by_app).all()
        assert measured("positions", covered[None], scenario)[0] == whole.coverage[-1]


def test_sampling_is_unbiased_under_resets(fleets: Fleets) -> None:
    # 137 s windows hold 228.3 launches on average: most windows see 2 samples, some 3
    scenario = fleets.alike(
        3, 100, clients=5000, load=0.05, sampling=Sampling(interval=1000, sampler="stride", reset_s=137.0)
    )
    taken = [int(block.visits(window).samples.sum()) for window in range(20) for block in blocks(scenario, 8)]
    launches = scenario.clients * 20 * 137.0 * 0.05 / fleets.LAUNCH_S
    fraction = 137.0 * 0.05 / fleets.LAUNCH_S / 1000 % 1
    deviation = np.sqrt(scenario.clients * 20 * fraction * (1 - fraction))
    assert abs(sum(taken) - launches / 1000) < 4 * deviation


def test_every_launch_is_sampled_as_often_as_asked_under_resets(fleets: Fleets) -> None:
    scenario = fleets.alike(
        1, 97, clients=1, load=1.0, sampling=Sampling(interval=1000, sampler="stride", reset_s=0.5)
    )
    from penrose_ray.sim.event import _Client  # noqa: PLC0415 - the state machine itself is tested here

    counts = [len(_Client(scenario, np.random.default_rng(seed)).sampled(10.0)[0]) for seed in range(100)]
    wanted = 10.0 / fleets.LAUNCH_S / 1000
    assert abs(np.mean(counts) - wanted) < 4 * np.std(counts, ddof=1) / 10


def test_load_on_and_off_samples_as_much_as_duty(fleets: Fleets) -> None:
    duty = fleets.alike(4, 999, clients=3000, load=0.25)
    on_off = fleets.alike(4, 999, clients=3000, load=0.25, load_form="on_off")
    taken = [
        sum(int(block.visits(window).samples.sum()) for window in range(12) for block in blocks(each, 1))
        for each in (duty, on_off)
    ]
    assert taken[1] == pytest.approx(taken[0], rel=4 / np.sqrt(3000 * 12 * 0.25))


def test_a_client_dwells_with_an_application(fleets: Fleets) -> None:
    scenario = fleets.alike(50, 999, clients=500, dwell_s=3600.0)
    (block,) = blocks(scenario, 3)
    apps = np.array([block.visits(window).app for window in range(60)])
    changes = (np.diff(apps, axis=0) != 0).mean()
    assert changes == pytest.approx(49 / 50 / 6, abs=0.02)
    assert np.bincount(apps.ravel().astype(int), minlength=50).min() > 0


def test_arcs_of_a_window_without_a_sample_are_left_out(fleets: Fleets) -> None:
    scenario = fleets.alike(1, 10, clients=100, load=0.001, sampling=Sampling(sampler="stride", reset_s=60.0))
    coverage = StrideCoverage(scenario)
    (block,) = blocks(scenario, 1)
    start, length = arcs_of(block.visits(0), coverage._rings)
    assert len(start) < 100
    assert (length > 0).all()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"hours": 0.0}, "hours"),
        ({"hours": -1.0}, "hours"),
        ({"hours": 1.0, "steps": 0}, "steps"),
    ],
)
def test_impossible_lengths_are_refused(fleets: Fleets, changes: dict[str, float], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        simulate(fleets.alike(1, 10), "poisson", **changes)  # type: ignore[arg-type]


def test_the_event_mode_refuses_a_fleet_that_would_never_end(fleets: Fleets) -> None:
    with pytest.raises(ConfigError, match="launches"):
        simulate(fleets.alike(1, 10), "event", hours=24)
