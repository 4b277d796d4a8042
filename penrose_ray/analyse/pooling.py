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
_SUMS = ("count", "samples", "reports", "real_reports", "launches", "variance", "histograms")
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
        A frame like `open_release`'s; `histograms` says how many of its rows were added.
    """
    hidden = {column for each in over for column in _HIDES[each]}
    key = ["class_id", "gpu_model", "counter_set", "bin", *([] if "batch" in hidden else ["batch"])]
    kept = [name for name in key if name not in hidden]
    work = frame.assign(histograms=1, variance=frame["noise_sigma"] ** 2)
    how = {
        **dict.fromkeys(_SUMS, "sum"),
        "batch_start": "min",
        "batch_end": "max",
        "epsilon": "max",
    }
    how |= {name: "first" for name in frame.columns if name not in {*kept, *how}}
    pooled = work.groupby(kept, observed=True, sort=True).agg(how).reset_index()
    for name in hidden - {"batch"}:
        pooled[name] = pd.Categorical.from_codes(np.zeros(len(pooled), np.int8), categories=pd.Index([ALL]))
    pooled["noise_sigma"] = np.sqrt(pooled["variance"])
    pooled["share"], pooled["share_low"], pooled["share_high"] = noisy_share(
        pooled["count"], pooled["samples"], pooled["noise_sigma"]
    )
    result = pooled[[*frame.columns, "histograms"]]
    result.attrs = dict(frame.attrs)
    return result
