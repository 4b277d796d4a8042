"""The fleet as a whole: which class takes how much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.histogram import BINS, above_noise, mean

if TYPE_CHECKING:
    from numpy.typing import NDArray


def classes_by_size(frame: pd.DataFrame) -> list[str]:
    """Labels of the frame's classes, most samples first."""
    labels = frame["label"].cat
    sizes = np.bincount(labels.codes, weights=frame["count"], minlength=len(labels.categories))
    present = np.bincount(labels.codes, minlength=len(sizes)) > 0
    order = np.argsort(-sizes, kind="stable")
    return [str(labels.categories[place]) for place in order if present[place]]


def bins_of(rows: pd.DataFrame) -> NDArray[np.int64]:
    """128 counts: the rows of one counter set added up over batches and classes."""
    counts = np.zeros(BINS, np.int64)
    np.add.at(counts, rows["bin"].to_numpy(np.int64), rows["count"].to_numpy(np.int64))
    return counts


def noise_of(rows: pd.DataFrame) -> float:
    """Standard deviation of the noise in one of the counts of `bins_of`."""
    variance = (rows["noise_sigma"] ** 2).groupby(rows["bin"].to_numpy()).sum()
    return float(np.sqrt(variance.max())) if len(variance) else 0.0


def per_class(frame: pd.DataFrame, counter_set: str) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """One counter set's histograms, batches added up: class_id, label, gpu_model; counts (classes, 128)."""
    rows = frame[frame["counter_set"] == counter_set]
    models = rows["gpu_model"].cat
    group = rows["class_id"].cat.codes.to_numpy(np.int64) * len(models.categories) + models.codes.to_numpy()
    known, first, place = np.unique(group, return_index=True, return_inverse=True)
    counts = np.zeros(len(known) * BINS, np.int64)
    np.add.at(counts, place * BINS + rows["bin"].to_numpy(np.int64), rows["count"].to_numpy(np.int64))
    keys = rows[["class_id", "label", "gpu_model"]].take(first).astype("str").reset_index(drop=True)
    return keys, counts.reshape(-1, BINS)


def noise_per_class(frame: pd.DataFrame, counter_set: str) -> NDArray[np.float64]:
    """Standard deviation of the noise in one bin of each histogram of `per_class`, in its order."""
    rows = frame[frame["counter_set"] == counter_set]
    models = rows["gpu_model"].cat
    group = rows["class_id"].cat.codes.to_numpy(np.int64) * len(models.categories) + models.codes.to_numpy()
    known, place = np.unique(group, return_inverse=True)
    variance = np.zeros(len(known) * BINS)
    np.add.at(variance, place * BINS + rows["bin"].to_numpy(np.int64), rows["noise_sigma"].to_numpy() ** 2)
    sigma: NDArray[np.float64] = np.sqrt(variance.reshape(-1, BINS).max(axis=1, initial=0.0))
    return sigma


def thinning(rows: pd.DataFrame) -> NDArray[np.float64]:
    """What a sample of each row stands for beside itself: 1 / keep_share, so 4 where one in four was kept."""
    weights: NDArray[np.float64] = 1.0 / rows["keep_share"].fillna(1.0).to_numpy(np.float64)
    return weights


def thinning_per_class(frame: pd.DataFrame, counter_set: str) -> NDArray[np.float64]:
    """`thinning` of each histogram of `per_class`, in its order."""
    rows = frame[frame["counter_set"] == counter_set]
    _, whole = per_class(frame, counter_set)
    _, estimated = per_class(rows.assign(count=rows["count"] * thinning(rows)), counter_set)
    before, after = whole.sum(axis=1), estimated.sum(axis=1)
    weights: NDArray[np.float64] = np.where(before > 0, after / np.maximum(before, 1), 1.0)
    return weights


def together(
    counts: NDArray[np.int64], sigma: NDArray[np.float64], thinned: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The histogram of all classes and its noise, each class weighing what it weighs in the fleet.

    Thinned classes count for what was dropped, too. The sum is scaled down to as many samples as would be
    as exact without weights ((sum w n)^2 / sum w^2 n; Kish, Survey Sampling, 1965), so that intervals hold.

    Args:
        counts: of `per_class`, shape (classes, 128).
        sigma: of `noise_per_class`, shape (classes,).
        thinned: of `thinning_per_class`, shape (classes,).

    Returns:
        Counts of shape (1, 128), and the noise of each, shape (1,).
    """
    samples = counts.sum(axis=1)
    worth, spread = (thinned * samples).sum(), (thinned**2 * samples).sum()
    scale = worth / spread if spread > 0 else 1.0
    total = np.rint(scale * thinned @ counts).astype(np.int64)
    return total[None, :], scale * np.sqrt((thinned**2 * sigma**2).sum(keepdims=True))


def fleet_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of each class in the fleet, largest first.

    Launches are sampled evenly, so a class's share of samples, with what was dropped under load, estimates
    its share of launches; times the mean duration, of bins that stand out of the noise, it estimates the
    share of GPU time. Samples of one counter set are counted, so that a class with more counters does not
    weigh more: of the durations, else of the set that most classes have.

    Returns:
        label, gpu_model, samples, launch_share, time_share (NaN without a duration).
    """
    table = pd.DataFrame({"label": [], "gpu_model": [], "samples": [], "launch_share": [], "time_share": []})
    if frame.empty or not frame["count"].any():
        return table
    name, timed = _reference_set(frame)
    known = counter_set_of(frame, name)
    keys, counts = per_class(frame, name)
    samples = counts.sum(axis=1)
    clear = above_noise(counts, noise_per_class(frame, name))
    launches = samples * thinning_per_class(frame, name)
    busy = launches * np.array([mean(known.axes[0], each) if timed and each.any() else 0.0 for each in clear])
    table = keys[["label", "gpu_model"]].assign(
        samples=samples,
        launch_share=launches / launches.sum(),
        time_share=busy / busy.sum() if timed else np.nan,
    )
    table = table[table["samples"] > 0]
    return table.sort_values("launch_share", ascending=False, kind="stable", ignore_index=True)


def _reference_set(frame: pd.DataFrame) -> tuple[str, bool]:
    """The counter set to count launches by, and whether it is a duration."""
    filled = frame[frame["samples"] > 0]
    classes = filled.groupby("counter_set", observed=True)["class_id"].nunique()
    for name in map(str, classes.index):
        known = counter_set_of(frame, name)
        if known.counters[0].name == "duration" and len(known.axes) == 1:
            return name, True
    return str(classes.idxmax()), False
