from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.accuracy import (
    best_interval,
    bins_within,
    contributors_for,
    noise_error,
    noise_sigma,
    samples_for_mean,
    samples_for_share,
    sensitivity,
    z_of,
)
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable


def test_samples_that_theory_gives() -> None:
    # z(99.3 %) = 2.697, so n = 72,730 (1 - p) / p
    assert float(samples_for_share(0.5)) == pytest.approx(72_730, rel=1e-4)
    assert float(samples_for_share(1 / 128)) == pytest.approx(72_730 * 127, rel=1e-4)
    # (269.7 c)^2 for the mean of a counter with coefficient of variation c
    assert samples_for_mean(0.1) == pytest.approx(727.3, rel=1e-3)
    assert z_of(0.993) == pytest.approx(2.697, abs=5e-4)


def test_99_3_percent_of_bins_are_within_1_percent_at_that_count() -> None:
    random = np.random.default_rng(20)
    share = np.full(128, 1 / 128)
    samples = math.ceil(float(samples_for_share(1 / 128)))
    counts = random.multinomial(samples, share, size=200)
    # 25,600 bins: the standard error of a rate of 0.993 is 0.0005
    assert bins_within(counts, samples * share) == pytest.approx(0.993, abs=0.002)
    fewer = random.multinomial(samples // 4, share, size=200)
    assert bins_within(fewer, samples / 4 * share) == pytest.approx(0.823, abs=0.01)  # 2 Phi(2.697 / 2) - 1


def test_noise_is_the_published_sigma() -> None:
    # Balle and Wang, ICML 2018: at epsilon 1 and delta 1e-5 the least sigma is 3.73, at 2 it is 1.99
    assert noise_sigma(1.0, 1e-5, 1.0) == pytest.approx(3.7304, abs=1e-3)
    assert noise_sigma(2.0, 1e-5, 1.0) == pytest.approx(1.9938, abs=1e-3)
    assert noise_sigma(2.0, 1e-5, 1.0) < math.sqrt(2 * math.log(1.25e5)) / 2  # the classical bound
    assert sensitivity(10_000, tokens=1) == pytest.approx(14_142.1, abs=0.1)
    assert sensitivity(10_000, tokens=32) == pytest.approx(80_000)  # 32 sums, each by 14,142
    assert sensitivity(10_000, tokens=2, reports_per_class=0) == pytest.approx(28_284.3, abs=0.1)  # one sum


@pytest.mark.parametrize(("contributors", "error"), [(100_000, 0.0204), (1_000, 2.04)])
def test_what_noise_costs_at_epsilon_2(contributors: int, error: float) -> None:
    sigma = noise_sigma(2.0, 1e-5, sensitivity(10_000, tokens=32))
    assert noise_error(sigma, contributors) == pytest.approx(error, rel=0.01)
    # and by simulation: every bin at its average, 400 releases
    average = contributors * 10_000 / 128
    noise = np.rint(np.random.default_rng(21).normal(0.0, sigma, (400, 128)))
    seen = (average + noise) / average - 1
    assert seen.std() == pytest.approx(error, rel=0.02)
    assert contributors_for(sigma, error) == pytest.approx(contributors, rel=0.01)


def test_more_sampling_is_not_always_better() -> None:
    # published overhead 0.014 % at S = 10,000: h = 1.4; a position that runs 1e8 times a day, c = 0.1
    best = best_interval(1e8, 0.1, 1.4)
    assert best == pytest.approx(3_397, abs=1)
    assert best_interval(1e6, 0.1) == pytest.approx(732, abs=1)

    def squared_error(interval: float) -> float:
        return (1.4 / interval) ** 2 + 0.1**2 * interval / 1e8

    assert squared_error(best) < squared_error(best * 0.8)
    assert squared_error(best) < squared_error(best * 1.25)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: samples_for_share(0.0), "share"),
        (lambda: samples_for_share([0.5, 1.5]), "share"),
        (lambda: samples_for_mean(-1), "variation"),
        (lambda: best_interval(0, 1), "executions"),
        (lambda: best_interval(1, 0), "variation"),
        (lambda: best_interval(1, 1, 0), "perturbation"),
    ],
)
def test_impossible_values_are_refused_by_name(call: Callable[[], object], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        call()
