"""What changed between two releases of one task."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.analyse.fleet import noise_per_class, per_class
from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import marginal, mean

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEYS = ["class_id", "label", "gpu_model"]


def drift(
    before: pd.DataFrame, after: pd.DataFrame, *, least_distance: float = 0.05, alpha: float = 0.01
) -> pd.DataFrame:
    """Distance of each class's histograms between two frames of the same task.

    A histogram drifted when its distance is at least `least_distance` and chance explains it with less than
    `alpha`: with millions of samples the test alone would call every difference drift.

    Args:
        before: from `open_release`.
        after: from `open_release`, same task.
        least_distance: total variation distance that matters, 0 to 1.
        alpha: level of the two-sample chi-square test.

    Returns:
        class_id, label, gpu_model, counter_set, distance (total variation), expected_distance (by chance
        alone), p_value, mean_ratio (after / before, of the first counter), drifted, seen ("both", "before"
        or "after").

    Raises:
        ConfigError: the frames are of different tasks.
    """
    tasks = [frame.attrs.get("task_id") for frame in (before, after)]
    if None not in tasks and tasks[0] != tasks[1]:
        raise ConfigError(
            "The two frames are of different tasks, whose class ids have nothing to do with each other.",
            remedy="Compare releases of one task; across tasks compare fleet figures by GPU model.",
        )
    names = sorted({*before.attrs.get("counter_sets", {}), *after.attrs.get("counter_sets", {})})
    parts = [_compared(before, after, name) for name in names]
    table = pd.concat(parts, ignore_index=True) if parts else _compared(before, after, "")
    table["drifted"] = (table["distance"] >= least_distance) & (table["p_value"] < alpha)
    return table.sort_values("distance", ascending=False, kind="stable", ignore_index=True)


def _compared(before: pd.DataFrame, after: pd.DataFrame, name: str) -> pd.DataFrame:
    old_keys, old = per_class(before, name)
    new_keys, new = per_class(after, name)
    noise = noise_per_class(before, name), noise_per_class(after, name)
    merged = old_keys.reset_index(names="old").merge(
        new_keys.reset_index(names="new"), on=_KEYS, how="outer", indicator="seen"
    )
    merged["seen"] = merged["seen"].map({"both": "both", "left_only": "before", "right_only": "after"})
    values = [
        _distance(before, name, (old[int(a)], new[int(b)]), (noise[0][int(a)], noise[1][int(b)]))
        if seen == "both"
        else (np.nan,) * 4
        for a, b, seen in zip(merged["old"], merged["new"], merged["seen"], strict=True)
    ]
    columns = ["distance", "expected_distance", "p_value", "mean_ratio"]
    found = pd.DataFrame(values, columns=columns, dtype="float64")
    return pd.concat([merged[_KEYS].assign(counter_set=name), found, merged["seen"].astype("str")], axis=1)


def _distance(
    frame: pd.DataFrame,
    name: str,
    counts: tuple[NDArray[np.int64], NDArray[np.int64]],
    sigma: tuple[float, float],
) -> tuple[float, float, float, float]:
    old, new = counts
    totals = old.sum(), new.sum()
    if min(totals) <= 0:
        return (np.nan,) * 4
    distance = float(np.abs(old / totals[0] - new / totals[1]).sum() / 2)
    pooled = np.clip((old + new) / (totals[0] + totals[1]), 0.0, 1.0)
    sampling = pooled * (1 - pooled) * (1 / totals[0] + 1 / totals[1])
    noise = (sigma[0] / totals[0]) ** 2 + (sigma[1] / totals[1]) ** 2
    expected = float(np.sqrt(sampling + noise).sum() * np.sqrt(2 / np.pi) / 2)
    known = counter_set_of(frame, name)
    ratio = np.nan
    if known.axes:
        first = [mean(known.axes[0], marginal(known, counts)) for counts in (old, new)]
        ratio = first[1] / first[0]
    return distance, expected, chi_square_p(old, new, sigma), float(ratio)


def chi_square_p(
    old: NDArray[np.int64], new: NDArray[np.int64], sigma: tuple[float, float] = (0.0, 0.0)
) -> float:
    """P value of the two-sample chi-square test of homogeneity over the bins that either sample fills.

    `sigma` is the noise's standard deviation in each count of the two; with noise every bin counts. The tail
    is Wilson and Hilferty's cube-root approximation (Proc. Nat. Acad. Sci. 17, 1931).
    """
    filled = ((old + new) > 0) | (max(sigma) > 0)
    freedom = int(filled.sum()) - 1
    if freedom < 1:
        return 1.0
    a, b = old[filled].astype(np.float64), new[filled].astype(np.float64)
    scale = np.sqrt(b.sum() / a.sum())
    noise = (scale * sigma[0]) ** 2 + (sigma[1] / scale) ** 2
    spread = np.clip(a + b, 0.0, None) + noise
    statistic = float(((a * scale - b / scale) ** 2 / spread).sum())
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))
    return 1.0 - statistics.NormalDist().cdf(float(z))
