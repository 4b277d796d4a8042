"""Sampling error against drawn histograms and figures worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.sampling_error import (
    best_interval,
    deviations,
    error_curve,
    error_of_interval,
    least_mass,
    samples_for_bin,
    samples_for_mean,
)


def test_known_figures() -> None:
    assert deviations() == pytest.approx(2.697, abs=5e-4)
    assert least_mass(1e8) == pytest.approx(7.3e-4, rel=0.01)
    assert least_mass(1e6) == pytest.approx(0.068, rel=0.01)
    assert samples_for_bin(0.5) == pytest.approx(72_730, rel=1e-3)
    assert [round(samples_for_mean(c)) for c in (0.01, 0.02, 0.05, 0.1)] == pytest.approx(
        [8, 30, 182, 728], abs=1
    )


def test_samples_and_mass_are_inverse() -> None:
    assert least_mass(samples_for_bin(0.013)) == pytest.approx(0.013)


def test_drawn_bins_keep_the_promise() -> None:
    mass = 0.2
    count = round(samples_for_bin(mass))
    drawn = np.random.default_rng(4).binomial(count, mass, 20_000) / count
    within = (np.abs(drawn - mass) <= 0.01 * mass).mean()
    assert abs(within - 0.993) < 4 * np.sqrt(0.993 * 0.007 / 20_000)


def test_more_samples_bring_more_bins_below_one_percent() -> None:
    spikes = np.zeros(128)
    spikes[::13] = 0.1
    table = error_curve(spikes, (10_000, 100_000, 1_000_000), trials=200, seed=1)
    assert table["relative"].is_monotonic_increasing
    # n p / (1 - p) = 111,111: z = 3.333, 99.91 %
    assert table["relative"].iloc[-1] == pytest.approx(0.9991, abs=0.003)
    assert table["absolute"].iloc[0] > 0.99
    assert table["weighted"].iloc[-1] == pytest.approx(table["relative"].iloc[-1])


def test_more_sampling_is_not_better_below_the_best_interval() -> None:
    assert best_interval(executions=1e8, variation=0.1) == pytest.approx(3397, abs=1)
    assert best_interval(executions=1e6, variation=0.1) == pytest.approx(732, abs=1)
    grid = np.geomspace(10, 1e6, 4001)
    errors = error_of_interval(grid, executions=1e8, variation=0.1)
    assert grid[errors.argmin()] == pytest.approx(3397, rel=0.005)
    assert error_of_interval(100, executions=1e15, variation=0.1) == pytest.approx(0.014, rel=1e-3)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: samples_for_bin(0.0), "mass"),
        (lambda: samples_for_bin(1.0), "mass"),
        (lambda: least_mass(0), "samples"),
        (lambda: samples_for_mean(-1), "variation"),
        (lambda: best_interval(executions=0, variation=1), "executions"),
        (lambda: best_interval(executions=1, variation=0), "variation"),
        (lambda: error_curve(np.array([0.5, 0.4]), (10,)), "masses"),
    ],
)
def test_impossible_values_are_refused_by_name(call, field: str) -> None:  # noqa: ANN001 - a table of closures
    with pytest.raises(ConfigError, match=field):
        call()
