"""Joint use of memory and tensor cores: is work on the two overlapped?

A sample is `tensor only`, `DRAM only`, `both` or `idle`, by a threshold on each axis. A threshold can only
lie on a bin edge, so the nearest one is taken and returned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.analyse.cells import at_or_above, nearest_edge
from penrose_ray.analyse.fleet import noise_per_class, per_class, thinning_per_class, together
from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.analyse.intervals import noisy_share
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.histogram import Axis, CounterSet

QUADRANTS = ("both", "tensor only", "DRAM only", "idle")
_AXES = 2


def joint_sets(frame: pd.DataFrame) -> list[str]:
    """Names of the frame's joint sets of DRAM and tensor use."""
    names = frame.attrs.get("counter_sets", {})
    return [name for name in names if _places(counter_set_of(frame, name)) is not None]


def quadrants(
    frame: pd.DataFrame,
    counter_set: str | None = None,
    *,
    dram_active: float | None = None,
    tensor_active: float | None = None,
) -> pd.DataFrame:
    """Share of samples in each quadrant, per class and for all of them (label `all`; see `fleet.together`).

    Args:
        frame: from `open_release`; batches are added up.
        counter_set: a joint set; the only one by default.
        dram_active: DRAM counts as used from here on, in the counter's unit; the middle of the axis by
            default.
        tensor_active: the same for tensor cores.

    Returns:
        class_id, label, gpu_model, quadrant, count, samples, share, share_low, share_high (95 %, of sampling
        and noise), dram_active, tensor_active (the edges really used).

    Raises:
        ConfigError: the frame has no such joint set, or several and none is named.
    """
    name = counter_set or _only(joint_sets(frame))
    known = counter_set_of(frame, name)
    places = _places(known)
    if places is None:
        raise ConfigError(
            f"Counter set {name!r} is not a joint set of DRAM and tensor use.", remedy="Name one that is."
        )
    dram, tensor = places
    thresholds = [_middle(axis) for axis in known.axes]
    thresholds[dram] = thresholds[dram] if dram_active is None else dram_active
    thresholds[tensor] = thresholds[tensor] if tensor_active is None else tensor_active
    edges = [nearest_edge(axis, wanted) for axis, wanted in zip(known.axes, thresholds, strict=True)]
    active = [at_or_above(known, axis, edge) for axis, edge in enumerate(edges)]
    keys, counts = per_class(frame, name)
    sigma = noise_per_class(frame, name)
    if len(keys):
        everything = together(counts, sigma, thinning_per_class(frame, name))
        counts, sigma = (np.concatenate(pair) for pair in zip(everything, (counts, sigma), strict=True))
        named = pd.DataFrame({"class_id": [""], "label": ["all"], "gpu_model": [""]})
        keys = pd.concat([named, keys], ignore_index=True)
    table = _counted(keys, counts, sigma, active[dram], active[tensor])
    table["dram_active"], table["tensor_active"] = edges[dram], edges[tensor]
    return table


def _counted(
    keys: pd.DataFrame,
    counts: NDArray[np.int64],
    sigma: NDArray[np.float64],
    dram: NDArray[np.bool_],
    tensor: NDArray[np.bool_],
) -> pd.DataFrame:
    """Counts and shares of the four quadrants."""
    masks = np.stack([dram & tensor, ~dram & tensor, dram & ~tensor, ~dram & ~tensor])
    table = keys.loc[keys.index.repeat(len(QUADRANTS))].reset_index(drop=True)
    kind = pd.CategoricalDtype(list(QUADRANTS), ordered=True)
    table["quadrant"] = pd.Series(list(QUADRANTS) * len(keys), dtype=kind)
    table["count"] = (counts @ masks.T.astype(np.int64)).ravel()
    table["samples"] = counts.sum(axis=1).repeat(len(QUADRANTS))
    noise = np.outer(sigma, np.sqrt(masks.sum(axis=1))).ravel()
    table["share"], table["share_low"], table["share_high"] = noisy_share(
        table["count"], table["samples"], noise
    )
    return table


def _places(counter_set: CounterSet) -> tuple[int, int] | None:
    """Positions of the DRAM and the tensor counter of a joint set."""
    names = [each.name.lower() for each in counter_set.counters]
    dram = [place for place, name in enumerate(names) if "dram" in name or "memory" in name]
    tensor = [place for place, name in enumerate(names) if "tensor" in name]
    if len(counter_set.axes) != _AXES or len(dram) != 1 or len(tensor) != 1:
        return None
    return dram[0], tensor[0]


def _only(names: list[str]) -> str:
    if len(names) != 1:
        raise ConfigError(
            f"The frame has {len(names)} joint sets of DRAM and tensor use ({', '.join(names) or 'none'}).",
            remedy="Name one; a task collects them as a counter set with two axes.",
        )
    return names[0]


def _middle(axis: Axis) -> float:
    return float(np.sqrt(axis.low * axis.high) if axis.scale == "log" else (axis.low + axis.high) / 2)
