"""How a counter moves from batch to batch, inside one task."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from penrose_ray.analyse.fleet import bins_of, noise_of
from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.analyse.percentiles import PERCENTILES, percentile_along
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import above_noise, marginal, mean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penrose_ray.histogram import CounterSet

_TYPES = {
    "batch_start": "datetime64[s, UTC]",
    **dict.fromkeys(("class_id", "label", "gpu_model"), "str"),
    "samples": "int64",
    **dict.fromkeys(("mean", *PERCENTILES), "float64"),
}
_KEYS = ["batch_start", "class_id", "label", "gpu_model"]


def trend(frame: pd.DataFrame, counter_set: str, axis: int = 0) -> pd.DataFrame:
    """Mean, median and 95th percentile of a counter per batch and class.

    Bins that noise alone explains are left out; `percentiles` says how.

    Args:
        frame: from `open_release(path, batches="each")`.
        counter_set: a counter set with axes.
        axis: which of a joint set's counters.

    Returns:
        batch_start, class_id, label, gpu_model, samples, mean, p50, p50_low, p50_high (95 %), p95, p95_low,
        p95_high, all in the counter's unit; batches without samples are left out.

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
        counts = bins_of(part)
        if counts.sum() <= 0:
            continue
        out.append(dict(zip(_KEYS, key, strict=True)) | _typical(known, counts, axis, noise_of(part)))
    return pd.DataFrame(out, columns=list(_TYPES)).astype(_TYPES)


def _typical(known: CounterSet, counts: NDArray[np.int64], axis: int, noise: float) -> dict[str, float]:
    clear = marginal(known, above_noise(counts, noise), axis)
    middle, high = (percentile_along(known, counts, axis, share, noise) for share in (0.5, 0.95))
    values = (mean(known.axes[axis], clear), *middle, *high)
    return {"samples": int(counts.sum()), **dict(zip(("mean", *PERCENTILES), values, strict=True))}
