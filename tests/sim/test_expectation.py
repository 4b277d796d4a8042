"""Expected coverage against published values, brute force and the rules of scaling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.expectation import expected_curve, expected_hours, windows_to
from penrose_ray.sim.population import Mix, time_shares
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.workloads import Workload

if TYPE_CHECKING:
    from conftest import Fleets


def test_equal_rates_give_known_coverage_at_parts_of_t99(fleets: Fleets) -> None:
    scenario = fleets.alike(20, 1000)
    t99 = expected_hours(scenario, 0.99)
    curve = expected_curve(scenario, np.array([0, t99 / 4, t99 / 2, t99]))
    assert curve.coverage == pytest.approx([0, 0.68377, 0.9, 0.99], abs=1e-5)
    assert expected_hours(scenario, 0.975) / t99 == pytest.approx(0.8010, abs=5e-5)


def test_t99_is_ln_100_times_runs_over_the_rate(fleets: Fleets) -> None:
    scenario = fleets.alike(500, 20_000, clients=1000, load=0.25)
    seconds = np.log(100) * 500 * 10_000 * (20_000 * fleets.LAUNCH_S) / (1000 * 0.25)
    assert expected_hours(scenario, 0.99) == pytest.approx(seconds / 3600, rel=1e-9)


def test_t99_is_proportional_to_apps_interval_and_groups_over_clients_and_load(fleets: Fleets) -> None:
    base = expected_hours(fleets.alike(100, 1000, load=0.1), 0.99)

    def ratio(apps: int = 100, **changes: object) -> float:
        return expected_hours(fleets.alike(apps, 1000, **{"load": 0.1, **changes}), 0.99) / base

    assert ratio(apps=200) == pytest.approx(2)
    assert ratio(clients=200_000) == pytest.approx(0.5)
    assert ratio(load=1.0) == pytest.approx(0.1)
    assert ratio(sampling=Sampling(interval=5000)) == pytest.approx(0.5)
    assert ratio(sampling=Sampling(counter_groups=4)) == pytest.approx(4)


def test_t99_of_a_run_of_fixed_length_does_not_depend_on_its_number_of_launches() -> None:
    def hours(launches: int) -> float:
        workload = Workload(np.array([launches]), np.array([0.6 / launches]), np.zeros(1, np.int64))
        return expected_hours(Scenario(workload, np.ones(1)), 0.99)

    assert hours(100) == pytest.approx(hours(20_000))


@pytest.mark.parametrize(("launches", "ratio"), [(600, 2.39), (30_000, 3.24)])
def test_full_coverage_takes_as_much_longer_as_cycles_are_long(
    fleets: Fleets, launches: int, ratio: float
) -> None:
    scenario = fleets.alike(10, launches)
    assert expected_hours(scenario, 0.99, "full") / expected_hours(scenario, 0.99) == pytest.approx(
        ratio, abs=0.01
    )


@pytest.mark.parametrize(
    ("zipf", "hours"),
    [
        (0.0, (0.67, 1.34, 2.68)),
        (0.5, (0.99, 1.99, 4.00)),
        (0.8, (1.74, 3.62, 7.51)),
        (1.0, (3.02, 6.66, 14.55)),
        (1.2, (6.14, 14.74, 35.12)),
    ],
)
def test_a_skewed_popularity_takes_longer_than_linear(zipf: float, hours: tuple[float, ...]) -> None:
    for apps, wanted in zip((500, 1000, 2000), hours, strict=True):
        workload = Workload(np.full(apps, 34_967), np.full(apps, 1.049 / 34_967), np.zeros(apps, np.int64))
        scenario = Scenario(workload, time_shares(Mix(zipf=zipf), workload))
        # the reference ends on a grid of time steps and rounds to 0.01 h
        assert expected_hours(scenario, 0.99) == pytest.approx(wanted, rel=0.005, abs=0.006)


@pytest.mark.parametrize(
    ("interval", "launches", "stride", "jitter"),
    [
        (10_000, 1000, 4603, 23),
        (10_000, 500, 2300, 12),
        (10_000, 5000, 23_024, 115),
        (10_000, 625, 2876, 14),
        (10_000, 1024, 71, 24),
        (10_000, 999, 21, 23),
        (10_007, 1000, 21, 23),
    ],
)
def test_a_stride_that_shares_a_factor_with_the_period_hides_positions(
    interval: int, launches: int, stride: int, jitter: int
) -> None:
    def windows(sampler: str) -> float:
        return windows_to(0.99, interval=interval, launches=launches, samples=200, sampler=sampler)

    assert round(windows("stride")) == stride
    assert round(windows("jitter")) == jitter


def test_an_application_without_share_is_never_covered() -> None:
    workload = Workload(np.array([10, 10]), np.full(2, 1e-3), np.zeros(2, np.int64))
    scenario = Scenario(workload, np.array([1.0, 0.0]))
    assert expected_hours(scenario, 0.99) == np.inf
    assert expected_hours(scenario, 0.49) < np.inf


@pytest.mark.parametrize("target", [0.0, 1.0, -0.1, float("nan")])
def test_a_target_that_is_no_share_is_refused(fleets: Fleets, target: float) -> None:
    with pytest.raises(ConfigError, match="target"):
        expected_hours(fleets.alike(1, 10), target)
    with pytest.raises(ConfigError, match="target"):
        windows_to(target, interval=10, launches=10, samples=1, sampler="stride")


def test_windows_to_refuses_nothing_to_sample() -> None:
    with pytest.raises(ConfigError, match="samples"):
        windows_to(0.9, interval=10, launches=10, samples=0, sampler="stride")
