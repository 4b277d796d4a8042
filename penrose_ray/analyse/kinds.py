"""Where launches and time go, by what a kernel does.

A categorical set counts launches of each kind. Time needs durations beside the kinds: a joint set of kind
(8 bins) by duration (16 bins), which `kind_duration_set` makes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.analyse.cells import axis_of, places, set_with, values
from penrose_ray.analyse.fleet import noise_per_class, per_class, thinning_per_class, together
from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.analyse.intervals import noisy_share, weighted_share
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import BINS, Axis, Counter, CounterSet
from penrose_ray.kernel_names import KIND_COUNTER, KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray


def kind_duration_set(source: str, vendor: str, *, low_ns: float = 1e3, high_ns: float = 1e9) -> CounterSet:
    """A joint set for a task: kind (numbered as `KINDS`) by log duration."""
    return CounterSet(
        "kind_duration",
        (Counter(KIND_COUNTER, "1", source, vendor), Counter("duration", "ns", source, vendor)),
        axes=(Axis("linear", 0.5, len(KINDS) - 1.5, len(KINDS)), Axis("log", low_ns, high_ns, 16)),
    )


def by_kind(frame: pd.DataFrame, *, fleet: bool = False) -> pd.DataFrame:
    """Share of launches and of time of each kind of kernel, per class or, with `fleet`, of all together.

    All together are weighted as `fleet.together` says; `launches` are sampled ones.

    Returns:
        class_id, label, gpu_model, kind, launches, launch_share, launch_share_low, launch_share_high,
        time_share, time_share_low, time_share_high (95 %; NaN where kinds carry no durations).

    Raises:
        ConfigError: the frame has no counter set of kernel kinds.
    """
    name, names, kind_of, weights = _layout(frame)
    keys, counts = per_class(frame, name)
    sigma = noise_per_class(frame, name)
    if fleet:
        keys = pd.DataFrame({"class_id": [""], "label": ["all"], "gpu_model": [""]})
        counts, sigma = together(counts, sigma, thinning_per_class(frame, name))
    total = counts.sum(axis=1)
    tables = []
    for place, kind in enumerate(names):
        members = kind_of == place
        hits = counts[:, members].sum(axis=1)
        share, low, high = noisy_share(hits, np.maximum(total, 1), sigma * np.sqrt(members.sum()))
        time = weighted_share(counts, weights, members, sigma=sigma)
        tables.append(
            keys.assign(
                kind=kind,
                launches=hits,
                launch_share=share,
                launch_share_low=low,
                launch_share_high=high,
                **dict(zip(("time_share", "time_share_low", "time_share_high"), time, strict=True)),
            )
        )
    table = pd.concat(tables, ignore_index=True)
    table["kind"] = pd.Categorical(table["kind"], categories=list(names), ordered=True)
    return table.sort_values(["class_id", "gpu_model", "kind"], ignore_index=True)


def _layout(frame: pd.DataFrame) -> tuple[str, tuple[str, ...], NDArray[np.int64], NDArray[np.float64]]:
    """Counter set, kinds, the kind of each bin and the time of a sample in it (NaN where unknown)."""
    joint = set_with(frame, KIND_COUNTER, "duration")
    if joint:
        known = counter_set_of(frame, joint)
        time = values(known, axis_of(known, "duration"))
        return joint, KINDS, places(known, axis_of(known, KIND_COUNTER)), time
    for name in frame.attrs.get("counter_sets", {}):
        known = counter_set_of(frame, name)
        if known.categories and known.counters[0].name == KIND_COUNTER:
            return name, known.categories, np.arange(BINS), np.full(BINS, np.nan)
    raise ConfigError(
        "The frame has no counter set of kernel kinds.",
        remedy="Add kinds.kind_duration_set(...) to the task, or a categorical set of kernel_kind.",
    )


def has_kinds(frame: pd.DataFrame) -> bool:
    """Whether `by_kind` has something to work on."""
    sets = [counter_set_of(frame, name) for name in frame.attrs.get("counter_sets", {})]
    return any(counter.name == KIND_COUNTER for each in sets for counter in each.counters)


def collectives(frame: pd.DataFrame) -> pd.DataFrame:
    """Several GPUs seen from one: how much of a class is communication between them.

    Returns:
        class_id, label, gpu_model, several_gpus (collectives were sampled), collective_share with `_low` and
        `_high` (of time where kinds carry durations, else of launches), basis, most_speedup: what full
        overlap of communication with computing could bring at most.

    Raises:
        ConfigError: as `by_kind`.
    """
    table = by_kind(frame)
    table = table[table["kind"] == "collective"].reset_index(drop=True)
    basis = "time" if table["time_share"].notna().any() else "launch"
    names = {f"{basis}_share{end}": f"collective_share{end}" for end in ("", "_low", "_high")}
    found = table[["class_id", "label", "gpu_model", "launches", *names]].rename(columns=names)
    found["several_gpus"] = found.pop("launches") > 0
    found["basis"] = basis
    share = found["collective_share"]
    found["most_speedup"] = 1 / np.maximum(share, 1 - share)  # the longer of the two remains
    return found
