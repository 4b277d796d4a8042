from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.frames import open_release
from penrose_ray.analyse.joint import quadrants
from penrose_ray.analyse.pooling import pool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.histogram import CounterSet


@pytest.fixture(scope="module")
def release(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    joint: CounterSet,
) -> Path:
    sums = [
        opened(joint, np.full(128, 10 * name), name=name, batch=batch, gpu_model=model)
        for name, model in ((1, "A100"), (2, "A100"), (3, "H100"))
        for batch in (20_000, 20_001)
    ]
    return write_release(make_task(joint), sums)


def test_over_batches_is_what_reading_sums(release: Path) -> None:
    pooled = pool(open_release(release), ["batches"])
    summed = open_release(release, batches="sum")
    for name in ("count", "samples", "reports", "share", "share_low", "share_high", "batch_end"):
        assert pooled[name].tolist() == summed[name].tolist(), name
    assert set(pooled["histograms"]) == {2}


def test_over_classes_keeps_models_apart(release: Path) -> None:
    pooled = pool(open_release(release), ["batches", "classes"])
    assert pooled.groupby("gpu_model", observed=True)["count"].first().to_dict() == {"A100": 60, "H100": 60}
    assert pooled["label"].unique().tolist() == ["all"]
    assert pooled["reports"].iloc[0] == 4 * 220


def test_insights_take_a_pooled_frame(release: Path) -> None:
    pooled = pool(open_release(release), ["batches", "classes", "models"])
    assert len(pooled) == 128
    assert quadrants(pooled)["count"].max() == 120 * 8 * 4  # 8 of 16 bins by 4 of 8


def test_what_was_kept_and_robust_means_are_pooled_by_weight(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    joint: CounterSet,
) -> None:
    """100 samples of which all were kept and 300 that are one in four: 400 stand for 1,300."""
    low, high = np.zeros(128, np.int64), np.zeros(128, np.int64)
    low[1 * 8 + 2], high[9 * 8 + 4] = 100, 300
    sums = [
        opened(joint, low, batch=20_000),
        dataclasses.replace(opened(joint, high, batch=20_001), keep_share=0.25),
    ]
    frame = open_release(write_release(make_task(joint, sampling_interval=7), sums))
    centres = [axis.centres() for axis in joint.axes]
    first = frame.groupby("batch")[["robust_mean", "robust_mean_2"]].first()
    assert first.to_numpy().tolist() == [[centres[0][1], centres[1][2]], [centres[0][9], centres[1][4]]]
    row = pool(frame, ["batches"]).iloc[0]
    assert (row["estimated_samples"], row["launches"], row["sub_batches"]) == (1_300, 9_100, 2)
    assert row["keep_share"] == pytest.approx(400 / 1_300)
    assert row["robust_mean"] == pytest.approx((100 * centres[0][1] + 300 * centres[0][9]) / 400)
    assert row["robust_mean_2"] == pytest.approx((100 * centres[1][2] + 300 * centres[1][4]) / 400)


def test_noise_widens_intervals_to_cover_the_truth(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    random, sigma = np.random.default_rng(12), 400.0
    truth = np.full(128, 1 / 128)
    sums = []
    for name in range(100):
        noisy = random.multinomial(200_000, truth) + np.rint(random.normal(0, sigma, 128)).astype(np.int64)
        sums.append(opened(duration, noisy, name=name))
    wide = open_release(write_release(make_task(duration, noise_sigma=sigma), sums))
    narrow = open_release(write_release(make_task(duration), sums))
    assert set(wide["noise_sigma"]) == {sigma}
    covered = (wide["share_low"] <= 1 / 128) & (wide["share_high"] >= 1 / 128)
    assert covered.mean() == pytest.approx(0.95, abs=0.01)  # 12,800 bins
    assert ((narrow["share_low"] <= 1 / 128) & (narrow["share_high"] >= 1 / 128)).mean() < 0.3


def test_noise_of_added_batches_adds_in_squares(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    sums = [opened(duration, np.full(128, 100_000), batch=20_000 + day) for day in range(4)]
    path = write_release(make_task(duration, noise_sigma=1e4), sums)
    one, four = open_release(path), open_release(path, batches="sum")
    assert four["noise_sigma"].iloc[0] == 2e4
    pooled = pool(one, ["batches"])
    assert pooled["share_low"].tolist() == four["share_low"].tolist()
    widths = [(each["share_high"] - each["share_low"]).iloc[0] for each in (one, four)]
    # noise dominates: twice the noise on four times the samples
    assert widths[0] / widths[1] == pytest.approx(2, rel=0.01)
