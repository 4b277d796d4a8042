"""Histograms of several batches, classes or GPU models as one.

Only counts of the same counter set of the same task are added: their bins have the same edges. What was
pooled reads `all`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
import pandas as pd

from penrose_ray.analyse.intervals import noisy_share

if TYPE_CHECKING:
    from collections.abc import Collection

ALL = "all"
_SUMS = (
    *("count", "samples", "reports", "real_reports", "estimated_samples", "launches", "sub_batches"),
    *("variance", "histograms"),
)
_HIDES = {
    "batches": ("batch",),
    "classes": ("class_id", "label"),
    "models": ("gpu_model",),
}


def pool(
    frame: pd.DataFrame,
    over: Collection[Literal["batches", "classes", "models"]],
) -> pd.DataFrame:
    """Add histograms up over batches, classes or GPU models, with shares and intervals anew.

    A class belongs to one GPU model, so pooling over models keeps classes apart unless they are pooled too.

    Args:
        frame: from `open_release`.
        over: what is added up.

    Returns:
        A frame like `open_release`'s; `histograms` says how many of its rows were added. Robust means are
        weighted by samples.
    """
    hidden = {column for each in over for column in _HIDES[each]}
    key = ["class_id", "gpu_model", "counter_set", "bin", *([] if "batch" in hidden else ["batch"])]
    kept = [name for name in key if name not in hidden]
    robust = [name for name in ("robust_mean", "robust_mean_2") if name in frame]
    weights = frame[robust].notna().mul(frame["samples"], axis=0)
    work = frame.assign(
        histograms=1,
        variance=frame["noise_sigma"] ** 2,
        **(frame[robust] * weights),
        **weights.add_prefix("weight_of_"),
    )
    how = {
        **dict.fromkeys((*_SUMS, *robust, *(f"weight_of_{name}" for name in robust)), "sum"),
        "batch_start": "min",
        "batch_end": "max",
        "epsilon": "max",
    }
    how |= {name: "first" for name in frame.columns if name not in {*kept, *how}}
    pooled = work.groupby(kept, observed=True, sort=True).agg(how).reset_index()
    for name in hidden - {"batch"}:
        pooled[name] = pd.Categorical.from_codes(np.zeros(len(pooled), np.int8), categories=pd.Index([ALL]))
    pooled["noise_sigma"] = np.sqrt(pooled["variance"])
    pooled["keep_share"] = pooled["samples"] / pooled["estimated_samples"].where(
        pooled["estimated_samples"] != 0
    )
    for name in robust:
        weight = pooled[f"weight_of_{name}"]
        pooled[name] = pooled[name] / weight.where(weight > 0)
    pooled["share"], pooled["share_low"], pooled["share_high"] = noisy_share(
        pooled["count"], pooled["samples"], pooled["noise_sigma"]
    )
    result = pooled[[*frame.columns, "histograms"]]
    result.attrs = dict(frame.attrs)
    return result
