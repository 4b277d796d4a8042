"""How a counter moves from batch to batch, inside one task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.analyse.intervals import z_of
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import BINS, above_noise, marginal, mean, quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.histogram import Axis

_TYPES = {
    "batch_start": "datetime64[s, UTC]",
    **dict.fromkeys(("class_id", "label", "gpu_model"), "str"),
    "samples": "int64",
    **dict.fromkeys(("mean", "p50", "p50_low", "p50_high", "p95"), "float64"),
}
_KEYS = ["batch_start", "class_id", "label", "gpu_model"]


def trend(frame: pd.DataFrame, counter_set: str, axis: int = 0) -> pd.DataFrame:
    """Mean, median and 95th percentile of a counter per batch and class.

    The interval of the median is that of order statistics: it needs no assumption about the distribution.
    Noise moves the rank of the median, half the bins up and half down, and widens it.

    Args:
        frame: from `open_release(path, batches="each")`.
        counter_set: a counter set with axes.
        axis: which of a joint set's counters.

    Returns:
        batch_start, class_id, label, gpu_model, samples, mean, p50, p50_low, p50_high (95 %), p95; batches
        without samples are left out.

    Raises:
        ConfigError: the frame has no such set, or it has categories.
    """
    known = counter_set_of(frame, counter_set)
    if not known.axes:
        raise ConfigError(
            f"Counter set {counter_set!r} has categories, which have no median.",
            remedy="Use kinds.by_kind on each batch.",
        )
    rows = frame[(frame["counter_set"] == counter_set) & (frame["count"] != 0)]
    out = []
    for key, part in rows.groupby(_KEYS, observed=True, sort=True):
        counts = np.bincount(part["bin"], weights=part["count"], minlength=BINS).astype(np.int64)
        if counts.sum() <= 0:
            continue
        noise = float(np.sqrt((part["noise_sigma"] ** 2).groupby(part["bin"]).sum().max()))
        clear = marginal(known, above_noise(counts, noise), axis)
        values = _typical(known.axes[axis], marginal(known, counts, axis), noise) | {
            "mean": mean(known.axes[axis], clear)
        }
        out.append(dict(zip(_KEYS, key, strict=True)) | values)
    return pd.DataFrame(out, columns=list(_TYPES)).astype(_TYPES)


def _typical(axis: Axis, counts: NDArray[np.int64], noise: float) -> dict[str, float]:
    samples = int(counts.sum())
    off = z_of(0.95) * np.sqrt(samples + BINS * noise**2) / (2.0 * samples)
    return {
        "samples": samples,
        "p50": quantile(axis, counts, 0.5),
        "p50_low": quantile(axis, counts, max(0.0, 0.5 - off)),
        "p50_high": quantile(axis, counts, min(1.0, 0.5 + off)),
        "p95": quantile(axis, counts, 0.95),
    }
