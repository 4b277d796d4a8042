"""Percentiles of noisy histograms against planted truths."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.frames import class_table, open_release
from penrose_ray.analyse.over_time import trend
from penrose_ray.analyse.percentiles import percentile, percentile_along, standing_out
from penrose_ray.histogram import Axis, above_noise, count, quantile

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from penrose_ray.histogram import CounterSet

AXIS = Axis("log", 100.0, 1e9)
BIN = float(np.log(AXIS.edges()[1] / AXIS.edges()[0]))
SAMPLES = 100_000
FLEETS = 200


def spread(*parts: tuple[float, float, float]) -> NDArray[np.float64]:
    """Share of each bin under lognormal parts (weight, median, sigma), from the normal distribution."""
    edges = np.concatenate(([-np.inf], np.log(AXIS.edges()), [np.inf]))
    shares = np.zeros(AXIS.bins)
    for weight, median, sigma in parts:
        below = [NormalDist(float(np.log(median)), sigma).cdf(float(edge)) for edge in edges]
        shares += weight * np.diff(below)
    return shares


TRUTHS = {
    "narrow": spread((1.0, 1e5, 0.5)),
    "wide": spread((1.0, 1e6, 1.5)),
    "two humps": spread((0.7, 2e4, 0.4), (0.3, 5e6, 0.4)),
    "everywhere": np.random.default_rng(4).dirichlet(np.full(128, 20.0)),
}


def truth_of(shares: NDArray[np.float64], share: float) -> float:
    return quantile(AXIS, shares, share)


def draws(shares: NDArray[np.float64], sigma: float, seed: int = 7) -> list[NDArray[np.int64]]:
    random = np.random.default_rng(seed)
    return [
        random.multinomial(SAMPLES, shares / shares.sum())
        + np.rint(random.normal(0.0, sigma, 128)).astype(np.int64)
        for _ in range(FLEETS)
    ]


def plain(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts whose running sum is that of the noisy ones, never falling: how percentiles were once taken."""
    running = np.maximum.accumulate(np.cumsum(counts))
    return np.diff(running, prepend=0).clip(0)


def error_in_bins(values: list[float], truth: float) -> float:
    logs = np.nan_to_num(np.log(values), nan=np.log(AXIS.high))
    return float(np.sqrt(np.mean((logs - np.log(truth)) ** 2)) / BIN)


def test_one_noisy_bin_far_out_does_not_move_the_95th_percentile() -> None:
    """5.5 % of the samples in one bin, 3.3 sigma: it was the whole tail, and is taken for noise."""
    counts = np.zeros(128, np.int64)
    counts[40], counts[120] = SAMPLES, 5_500
    assert quantile(AXIS, plain(counts), 0.95) > 100 * AXIS.edges()[40], "the old way follows it"
    found = percentile(AXIS, counts, 0.95, sigma=1_650.0)
    assert AXIS.edges()[39] <= found.value <= AXIS.edges()[40]


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("sigma", [100.0, 300.0])
def test_percentiles_are_nearer_to_the_truth_than_those_of_plain_or_cut_counts(
    name: str, sigma: float
) -> None:
    noisy = draws(TRUTHS[name], sigma)
    errors = {"plain": 0.0, "cut": 0.0, "kept": 0.0}
    for share in (0.5, 0.95):
        truth = truth_of(TRUTHS[name], share)
        errors["plain"] += error_in_bins([quantile(AXIS, plain(each), share) for each in noisy], truth)
        errors["cut"] += error_in_bins(
            [quantile(AXIS, above_noise(each, sigma), share) for each in noisy], truth
        )
        errors["kept"] += error_in_bins([percentile(AXIS, each, share, sigma).value for each in noisy], truth)
    assert errors["kept"] <= 1.02 * errors["plain"]
    assert errors["kept"] <= 1.02 * errors["cut"]
    if name in ("narrow", "two humps"):
        assert errors["kept"] < 0.7 * errors["plain"]


@pytest.mark.parametrize("name", TRUTHS)
@pytest.mark.parametrize("sigma", [0.0, 100.0, 300.0, 1_000.0])
@pytest.mark.parametrize("share", [0.5, 0.95])
def test_intervals_hold_the_truth(name: str, sigma: float, share: float) -> None:
    """95 % of 200 is 190, three standard errors are 9; with noise they are wide on purpose."""
    truth = truth_of(TRUTHS[name], share)
    found = [percentile(AXIS, each, share, sigma) for each in draws(TRUTHS[name], sigma, seed=9)]
    assert sum(each.low <= truth * (1 + 1e-9) and truth <= each.high * (1 + 1e-9) for each in found) >= 181
    assert all(each.low <= each.value <= each.high for each in found)


def test_what_stands_out_is_never_negative_and_without_noise_all_of_it() -> None:
    random = np.random.default_rng(1)
    for sigma in (50.0, 500.0, 5_000.0):
        for noisy in draws(TRUTHS["two humps"], sigma, seed=int(sigma))[:20]:
            assert (standing_out(noisy, sigma) >= 0).all()
    exact = random.integers(0, 9, 128)
    assert standing_out(exact, 0.0).tolist() == exact.tolist()


def test_noise_alone_has_no_percentile() -> None:
    random = np.random.default_rng(2)
    noise = [np.rint(random.normal(0, 400.0, 128)).astype(np.int64) for _ in range(FLEETS)]
    found = [percentile(AXIS, each, 0.95, 400.0).value for each in noise]
    assert np.isnan(found).mean() >= 0.9


def test_noise_of_a_joint_set_adds_up_along_the_other_axis(joint: CounterSet) -> None:
    """A margin of 16 bins adds 8 counts each, so its noise is sqrt(8) times that of a count."""
    random, sigma = np.random.default_rng(3), 50.0
    values = np.column_stack([random.uniform(0, 100, 20_000), random.uniform(0, 40, 20_000)])
    exact = count(joint, values)
    found = []
    for _ in range(FLEETS):
        noisy = exact + np.rint(random.normal(0, sigma, 128)).astype(np.int64)
        found.append(percentile_along(joint, noisy, 0, 0.5, sigma))
    assert sum(each.low <= 50.0 <= each.high for each in found) >= 181


def test_the_table_and_the_trend_of_a_noisy_release_hold_the_truth(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    """The same 100 draws: without noise the truth is the file's own, with noise both calls come near it."""
    sigma, truth = 300.0, truth_of(TRUTHS["two humps"], 0.95)
    sums = [opened(duration, each, name=name) for name, each in enumerate(draws(TRUTHS["two humps"], sigma))]
    path = write_release(make_task(duration, noise_sigma=sigma), sums[:100])
    table, moves = class_table(path), trend(open_release(path), "duration")
    for found in (table, moves):
        assert len(found) == 100
        assert ((found["p95_low"] <= truth) & (truth <= found["p95_high"])).sum() >= 95 - 7
        assert np.median(np.abs(np.log(found["p95"] / truth))) < BIN
    assert table.sort_values("class_id")["p95"].tolist() == moves.sort_values("class_id")["p95"].tolist()
