"""Insights on noisy releases: intervals hold the truth, chance is not taken for a finding."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse import drift, kinds, suspects, utilisation
from penrose_ray.analyse.fleet import fleet_shares
from penrose_ray.analyse.frames import class_table, open_release
from penrose_ray.analyse.joint import quadrants
from penrose_ray.analyse.over_time import trend
from penrose_ray.analyse.pooling import pool
from penrose_ray.histogram import Axis, Counter, CounterSet, mean
from penrose_ray.opening import Opening

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

SIGMA = 300.0
SAMPLES = 100_000
CLASSES = 200
"""95 % of 200 is 190, three standard errors are 9."""


@pytest.fixture(scope="session")
def noisy(
    make_task: Callable[..., Any], opened: Callable[..., Any], write_release: Callable[..., Path]
) -> Callable[..., pd.DataFrame]:
    """A release of many classes, each a draw of the same shares with noise on every bin."""

    def make(one: CounterSet, shares: NDArray[np.float64], seed: int = 1) -> pd.DataFrame:
        random = np.random.default_rng(seed)
        sums = []
        for name in range(CLASSES):
            noise = np.rint(random.normal(0, SIGMA, 128)).astype(np.int64)
            sums.append(opened(one, random.multinomial(SAMPLES, shares) + noise, name=name))
        return open_release(write_release(make_task(one, noise_sigma=SIGMA), sums))

    return make


def covered(table: pd.DataFrame, truth: float, name: str = "share") -> int:
    return int(((table[f"{name}_low"] <= truth) & (truth <= table[f"{name}_high"])).sum())


def test_quadrants_of_noisy_histograms(noisy: Callable[..., pd.DataFrame], joint: CounterSet) -> None:
    shares = np.random.default_rng(2).dirichlet(np.ones(128))
    truth = shares.reshape(16, 8)[8:, :4].sum()  # DRAM from 50 % on, tensor cores below
    table = quadrants(noisy(joint, shares))
    alone = table[(table["quadrant"] == "DRAM only") & (table["label"] != "all")]
    assert 181 <= covered(alone, truth) <= 199
    everything = table[(table["quadrant"] == "DRAM only") & (table["label"] == "all")].iloc[0]
    assert everything["share_low"] <= truth <= everything["share_high"]
    assert everything["share_high"] - everything["share_low"] < 0.01


def test_kinds_and_waste_of_noisy_histograms(noisy: Callable[..., pd.DataFrame]) -> None:
    shares = np.random.default_rng(3).dirichlet(np.ones(128))
    timed = kinds.kind_duration_set("cupti", "nvidia")
    weights = timed.axes[1].centres()
    frame = noisy(timed, shares)
    gemm = kinds.by_kind(frame)
    gemm = gemm[gemm["kind"] == "gemm"]
    grid = shares.reshape(8, 16)
    assert 181 <= covered(gemm, grid[0].sum(), "launch_share") <= 199
    assert 181 <= covered(gemm, (grid[0] * weights).sum() / (grid * weights).sum(), "time_share") <= 199
    both = CounterSet(
        "use",
        (Counter("sm_active", "%", "dcgm", "nvidia"), Counter("dram_active", "%", "dcgm", "nvidia")),
        axes=(Axis("linear", 0, 100, 8), Axis("linear", 0, 100, 16)),
    )
    # the edges next to 80 and 65 % are 83.3 and 64.3 %: bins 6 on of 8, below bin 10 of 16
    table = utilisation.useful_throughput(noisy(both, shares))
    assert 181 <= covered(table, shares.reshape(8, 16)[6:, :10].sum()) <= 199


def test_medians_of_noisy_histograms(noisy: Callable[..., pd.DataFrame], duration: CounterSet) -> None:
    shares = np.random.default_rng(4).dirichlet(np.full(128, 20.0))
    edges = duration.axes[0].edges()
    place = int(np.searchsorted(np.cumsum(shares), 0.5))
    part = (0.5 - np.cumsum(shares)[place - 1]) / shares[place]
    truth = edges[place - 1] * (edges[place] / edges[place - 1]) ** part
    assert covered(trend(noisy(duration, shares), "duration"), truth, "p50") >= 181


def test_noise_is_not_taken_for_drift_nor_for_impossible_values(noisy: Callable[..., pd.DataFrame]) -> None:
    axis = Axis("linear", 0.0, 252.0)
    wide = CounterSet("sm", (Counter("sm_active", "%", "dcgm", "nvidia"),), axes=(axis,))
    shares = np.where(axis.centres() < 100, 1.0, 0.0)
    shares /= shares.sum()
    before, after = noisy(wide, shares), noisy(wide, shares, seed=5)
    table = drift.drift(before, after, alpha=0.05)
    assert (table["p_value"] < 0.05).mean() == pytest.approx(0.05, abs=0.05)
    assert table["distance"].mean() == pytest.approx(table["expected_distance"].mean(), rel=0.05)
    assert suspects.suspects(before).empty
    shares[100] = 0.2
    assert set(suspects.suspects(noisy(wide, shares / shares.sum()))["reason"]) == {"above the possible"}


def test_means_are_not_moved_by_noise_in_far_bins(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    """Durations of some 100 us; the last bins stand for a second, and noise there would be the whole mean."""
    random = np.random.default_rng(8)
    axis, sums, exact = duration.axes[0], [], []
    for name, typical in enumerate((5e4, 2e5)):
        values = random.lognormal(np.log(typical), 0.5, SAMPLES)
        counts = np.bincount(axis.index(values), minlength=128)
        noise = np.rint(random.normal(0, SIGMA / 5, 128)).astype(np.int64)
        sums.append(opened(duration, counts + noise, name=name))
        exact.append(values.mean())
    frame_of = write_release(make_task(duration, noise_sigma=SIGMA / 5), sums)
    frame = open_release(frame_of)
    table = class_table(frame_of)
    for means in (table["mean"], table["robust_mean"], utilisation.mean_of(frame, "duration")["mean"]):
        assert means.tolist() == pytest.approx(exact, rel=0.03)
    assert trend(frame, "duration")["mean"].tolist() == pytest.approx(exact, rel=0.03)
    shares = fleet_shares(frame).set_index("label")["time_share"].sort_index()
    assert shares.tolist() == pytest.approx([each / sum(exact) for each in exact], abs=0.01)
    raw = [mean(axis, each.counts) for each in sums]
    assert any(abs(each / truth - 1) > 0.3 for each, truth in zip(raw, exact, strict=True)), "it was needed"


def test_sub_batches_add_up_and_their_median_of_means_is_kept(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    """Three sub-batches, one of them spoiled: the mean follows it, the median of means does not."""
    clean, spoiled = np.zeros(128, np.int64), np.zeros(128, np.int64)
    clean[40], spoiled[127] = 1_000, 1_000
    parts = [
        dataclasses.replace(opened(duration, counts), sub_batch=place, keep_share=0.5)
        for place, counts in enumerate((clean, clean, spoiled))
    ]
    path = write_release(make_task(duration, sampling_interval=100), parts)
    frame = open_release(path)
    assert len(frame) == 128
    assert frame["count"].sum() == 3_000
    assert set(frame["launches"]) == {3_000 * 2 * 100}
    row = class_table(path).iloc[0]
    assert row["robust_mean"] == pytest.approx(duration.axes[0].centres()[40])
    assert row["mean"] > 100 * row["robust_mean"]
    for each in (frame, class_table(path), pool(frame, ["batches"])):
        seen = each[["sub_batches", "keep_share", "estimated_samples", "launches", "robust_mean"]]
        assert set(seen.itertuples(index=False, name=None)) == {(3, 0.5, 6_000, 600_000, row["robust_mean"])}
    assert "robust_mean_2" not in frame


def test_epsilon_spent_and_the_sampling_interval_are_in_the_frame(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    task = make_task(duration, noise_sigma=10.0, sampling_interval=5_000)
    openings = [
        Opening(task, batch, (opened(duration, np.full(128, 9), batch=batch),), (), spent_epsilon=epsilon)
        for batch, epsilon in ((20_000, 0.7), (20_001, 1.1))
    ]
    path = write_release(task, [], *openings)
    each, total = open_release(path), open_release(path, batches="sum")
    assert each["epsilon"].unique().tolist() == [0.7, 1.1]
    assert total["epsilon"].unique().tolist() == [1.1]
    assert each.attrs["sampling_interval"] == 5_000
    assert each.attrs["noise_sigma"] == 10.0
    assert total["noise_sigma"].iloc[0] == pytest.approx(10 * np.sqrt(2))
