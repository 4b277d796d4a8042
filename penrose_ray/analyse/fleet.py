"""The fleet as a whole: which class takes how much of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.histogram import BINS, mean

if TYPE_CHECKING:
    from numpy.typing import NDArray


def classes_by_size(frame: pd.DataFrame) -> list[str]:
    """Labels of the frame's classes, most samples first."""
    if frame.empty:
        return []
    sizes = frame.groupby(frame["label"].astype("str"))["count"].sum()
    return [str(label) for label in sizes.sort_values(ascending=False, kind="stable").index]


def bins_of(rows: pd.DataFrame) -> NDArray[np.int64]:
    """128 counts: the rows of one counter set added up over batches and classes."""
    counts = np.zeros(BINS, np.int64)
    np.add.at(counts, rows["bin"].to_numpy(np.int64), rows["count"].to_numpy(np.int64))
    return counts


def fleet_shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of each class in the fleet, largest first.

    Launches are sampled evenly, so a class's share of samples estimates its share of launches; times the mean
    duration, it estimates the share of GPU time. Samples of one counter set are counted, so that a class with
    more counters does not weigh more: of the durations, else of the set that most classes have.

    Returns:
        label, gpu_model, samples, launch_share, time_share (NaN without a duration).
    """
    table = pd.DataFrame({"label": [], "gpu_model": [], "samples": [], "launch_share": [], "time_share": []})
    if frame.empty or not frame["count"].any():
        return table
    name, timed = _reference_set(frame)
    rows = frame[(frame["counter_set"] == name) & (frame["samples"] > 0)]
    known = counter_set_of(frame, name)
    groups = [(key, bins_of(part)) for key, part in rows.groupby(["label", "gpu_model"], observed=True)]
    samples = np.array([counts.sum() for _, counts in groups])
    busy = samples * [mean(known.axes[0], counts) if timed else np.nan for _, counts in groups]
    table = pd.DataFrame([key for key, _ in groups], columns=["label", "gpu_model"]).astype("str")
    table = table.assign(samples=samples, launch_share=samples / samples.sum(), time_share=busy / busy.sum())
    return table.sort_values("samples", ascending=False, kind="stable", ignore_index=True)


def _reference_set(frame: pd.DataFrame) -> tuple[str, bool]:
    """The counter set to count launches by, and whether it is a duration."""
    filled = frame[frame["samples"] > 0]
    classes = filled.groupby("counter_set", observed=True)["class_id"].nunique()
    for name in map(str, classes.index):
        known = counter_set_of(frame, name)
        if known.counters[0].name == "duration" and len(known.axes) == 1:
            return name, True
    return str(classes.idxmax()), False
