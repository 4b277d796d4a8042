"""Busy is not the same as useful: launches that keep the GPU busy while memory bandwidth idles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.analyse.cells import at_or_above, axis_of, nearest_edge, set_with, values
from penrose_ray.analyse.fleet import noise_per_class, per_class
from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.analyse.intervals import noisy_share
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import above_noise

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_KEYS = ["class_id", "label", "gpu_model"]
_NOTABLE = 0.25
"""Share of samples from which on a class is worth a look."""
_MOSTLY = 0.5


def useful_throughput(
    frame: pd.DataFrame,
    *,
    busy: str = "sm_active",
    bandwidth: str = "dram_active",
    busy_from: float = 80.0,
    bandwidth_below: float = 65.0,
    short_ns: float = 20_000.0,
) -> pd.DataFrame:
    """Share of samples that are busy and yet leave bandwidth unused, per class.

    With a joint set of both counters the share is counted. With two separate sets it is only known to lie
    between the Frechet bounds of its margins; `share` is then NaN.

    Args:
        frame: from `open_release`.
        busy: counter of how busy the GPU is.
        bandwidth: counter of memory bandwidth in use.
        busy_from: busy from here on, in the counter's unit; the nearest bin edge is taken.
        bandwidth_below: unused below here; the nearest bin edge is taken.
        short_ns: launches shorter than this are candidates for fusion.

    Returns:
        class_id, label, gpu_model, basis ("joint" or "bounds"), share, share_low, share_high, short_share (of
        launches; NaN without durations), advice.

    Raises:
        ConfigError: a counter is missing.
    """
    both = set_with(frame, busy, bandwidth)
    table = (
        _counted(frame, both, (busy, busy_from), (bandwidth, bandwidth_below))
        if both
        else _bounded(frame, (busy, busy_from), (bandwidth, bandwidth_below))
    )
    short = _short(frame, short_ns)
    table = (
        table.merge(short, on=_KEYS, how="left") if short is not None else table.assign(short_share=np.nan)
    )
    notable = table["share_low"] >= _NOTABLE
    fusion = notable & (table["short_share"] >= _MOSTLY)
    table["advice"] = np.select(
        [fusion, notable],
        ["fuse short kernels", "busy without bandwidth: look at occupancy and access patterns"],
        "nothing to do",
    )
    return table


def _counted(
    frame: pd.DataFrame, name: str, busy: tuple[str, float], bandwidth: tuple[str, float]
) -> pd.DataFrame:
    known = counter_set_of(frame, name)
    keys, counts = per_class(frame, name)
    masks = []
    for counter, wanted in (busy, bandwidth):
        axis = axis_of(known, counter)
        masks.append(at_or_above(known, axis, nearest_edge(known.axes[axis], wanted)))
    wasted = masks[0] & ~masks[1]
    noise = noise_per_class(frame, name) * np.sqrt(wasted.sum())
    share, low, high = noisy_share(counts[:, wasted].sum(axis=1), np.maximum(counts.sum(axis=1), 1), noise)
    return keys.assign(basis="joint", share=share, share_low=low, share_high=high)


def _bounded(frame: pd.DataFrame, busy: tuple[str, float], bandwidth: tuple[str, float]) -> pd.DataFrame:
    is_busy = _share_from(frame, *busy).rename(columns={"share": "busy_share"})
    used = _share_from(frame, *bandwidth).rename(columns={"share": "used_share"})
    table = is_busy.merge(used, on=_KEYS)
    unused, held = 1 - table.pop("used_share"), table.pop("busy_share")
    return table.assign(
        basis="bounds",
        share=np.nan,
        share_low=np.maximum(0.0, held + unused - 1),
        share_high=np.minimum(held, unused),
    )


def _share_from(frame: pd.DataFrame, counter: str, wanted: float) -> pd.DataFrame:
    name = set_with(frame, counter)
    if name is None:
        raise ConfigError(
            f"The frame has no counter {counter!r}.",
            remedy="Name counters of the task, or collect both as a joint set.",
        )
    known = counter_set_of(frame, name)
    keys, counts = per_class(frame, name)
    mask = at_or_above(known, 0, nearest_edge(known.axes[0], wanted))
    return keys.assign(share=counts[:, mask].sum(axis=1) / np.maximum(counts.sum(axis=1), 1))


def _short(frame: pd.DataFrame, short_ns: float) -> pd.DataFrame | None:
    name = set_with(frame, "duration")
    if name is None:
        return None
    known = counter_set_of(frame, name)
    keys, counts = per_class(frame, name)
    edge = nearest_edge(known.axes[0], short_ns)
    short: NDArray[np.bool_] = ~at_or_above(known, 0, edge)
    return keys.assign(short_share=counts[:, short].sum(axis=1) / np.maximum(counts.sum(axis=1), 1))


def mean_of(frame: pd.DataFrame, counter: str) -> pd.DataFrame:
    """Mean of a counter per class by bin centres: class_id, label, gpu_model, mean, samples.

    Bins that noise alone explains are left out.

    Raises:
        ConfigError: no counter set has it.
    """
    for name in frame.attrs.get("counter_sets", {}):
        known = counter_set_of(frame, name)
        if known.axes and counter in [each.name for each in known.counters]:
            keys, counts = per_class(frame, name)
            clear = above_noise(counts, noise_per_class(frame, name))
            total = clear.sum(axis=1)
            weighted = (clear * values(known, axis_of(known, counter))).sum(axis=1)
            return keys.assign(mean=weighted / np.where(total, total, np.nan), samples=counts.sum(axis=1))
    raise ConfigError(f"The frame has no counter {counter!r}.", remedy="Name a counter of the task.")
