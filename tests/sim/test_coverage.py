"""Definitions of coverage, curves, and when somebody hears of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.coverage import Curve, Definition, expected, measured, published_later
from penrose_ray.sim.engine import simulate
from penrose_ray.sim.expectation import expected_curve
from penrose_ray.sim.scenario import Scenario
from penrose_ray.sim.workloads import Workload

if TYPE_CHECKING:
    from conftest import Fleets


def two_apps() -> Scenario:
    workload = Workload(np.array([10, 30]), np.full(2, 1e-3), np.zeros(2, np.int64))
    return Scenario(workload, np.array([0.8, 0.2]))


@pytest.mark.parametrize(
    ("definition", "wanted"),
    [
        ("positions", (1.0 + 1 / 3) / 2),
        ("launches", 20 / 40),
        ("time", 0.8 + 0.2 / 3),
        ("full", 0.5),
        ("seen", 1.0),
    ],
)
def test_definitions_on_counts(definition: Definition, wanted: float) -> None:
    assert measured(definition, np.array([[10, 10]]), two_apps()) == pytest.approx([wanted])


@pytest.mark.parametrize(
    ("definition", "shares"),
    [
        ("positions", (0.9, 0.97)),
        ("launches", (0.9, 0.97)),
        ("time", (0.9, 0.97)),
        ("full", (0.9, 0.97)),
        ("seen", (0.1, 0.05)),
    ],
)
def test_the_expectation_of_each_definition_is_the_mean_of_drawn_ones(
    definition: Definition, shares: tuple[float, float]
) -> None:
    rng = np.random.default_rng(2)
    share = np.array([shares])
    drawn = rng.binomial([10, 30], share, (20_000, 2))
    found = measured(definition, drawn, two_apps())
    assert found.mean() == pytest.approx(
        expected(definition, share, two_apps())[0], abs=4 * found.std() / np.sqrt(20_000)
    )


def test_hours_between_points_follow_the_exponential(fleets: Fleets) -> None:
    curve = expected_curve(fleets.alike(3, 100), np.linspace(0, 0.1, 5))
    exact = -np.log(1 - 0.7) / (fleets.alike(3, 100).rate_per_s[0] * 3600)
    curve = expected_curve(fleets.alike(3, 100), np.linspace(0, exact * 2.7, 5))
    assert curve.hours_to(0.7) == pytest.approx(exact, rel=1e-9)


def test_hours_of_a_target_at_the_ends() -> None:
    curve = Curve(np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.5, 1.0]), np.ones(1))
    assert curve.hours_to(0.5) == 1
    assert 1 < curve.hours_to(0.75) < 2
    assert np.isnan(Curve(curve.hours, curve.coverage / 2, np.ones(1)).hours_to(0.9))
    assert Curve(curve.hours, np.ones(3), np.ones(1)).hours_to(0.9) == 0
    with pytest.raises(ConfigError, match="target"):
        curve.hours_to(1.0)


def test_who_waits_for_full_histograms_hears_nothing_before_the_first(fleets: Fleets) -> None:
    scenario = fleets.alike(10, 1000, clients=2)
    period_h = 3000 / scenario.load / 3600
    curve = simulate(scenario, "closed_form", hours=3 * period_h, steps=300)
    heard = published_later(curve, period_h)
    assert (heard.coverage[curve.hours < period_h - 1e-9] == 0).all()
    assert (heard.coverage <= curve.coverage + 1e-12).all()
    assert heard.coverage[150] == pytest.approx(curve.coverage[100])
    assert heard.coverage[-1] == pytest.approx(curve.coverage[-1])
    with pytest.raises(ConfigError, match="period_h"):
        published_later(curve, 0)
