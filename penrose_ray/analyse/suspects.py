"""Values that cannot be: wrong drivers, wrong units, sources that contradict each other."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.analyse.fleet import noise_per_class, per_class
from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.analyse.percentiles import percentile_along
from penrose_ray.histogram import BINS, marginal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from penrose_ray.histogram import Axis, Counter

_DEVIATIONS = 4.0
"""Standard deviations of noise in all bins together that a share has to exceed."""
_COLUMNS = ["label", "gpu_model", "counter_set", "counter", "source", "reason", "share", "detail"]
_NEVER_NEGATIVE = {"%", "ns", "1", "work-items/us", "bytes", "W"}


def suspects(
    frame: pd.DataFrame,
    *,
    limits: Mapping[str, tuple[float, float]] | None = None,
    least_share: float = 0.001,
    disagreement: float = 2.0,
) -> pd.DataFrame:
    """Histograms with values that cannot be, or that point to a driver mismatch.

    Args:
        frame: from `open_release`.
        limits: lowest and highest possible value by counter name, such as a memory's peak bandwidth.
            Percentages end at 0 and 100, times and counts at 0, without being named.
        least_share: smaller shares of a histogram are taken for stray samples.
        disagreement: ratio of medians from which on two sources of one counter contradict each other.

    Returns:
        label, gpu_model, counter_set, counter, source, reason ("above the possible", "below the possible",
        "one value only", "sources disagree"), share (of samples), detail.
    """
    found: list[dict[str, object]] = []
    for name in frame.attrs.get("counter_sets", {}):
        known = counter_set_of(frame, name)
        keys, counts = per_class(frame, name)
        noise = noise_per_class(frame, name)
        for place, key in enumerate(keys.itertuples(index=False)):
            chance = _DEVIATIONS * noise[place] * np.sqrt(BINS) / max(int(counts[place].sum()), 1)
            for axis, (counter, bins) in enumerate(zip(known.counters, known.axes, strict=False)):
                margin = marginal(known, counts[place], axis)
                low, high = (limits or {}).get(counter.name, _possible(counter))
                where = {"label": key.label, "gpu_model": key.gpu_model, "counter_set": name}
                where |= {"counter": counter.name, "source": counter.source}
                for reason, share, detail in _judged(bins, margin, low, high):
                    if share >= least_share + chance:
                        found.append({**where, "reason": reason, "share": share, "detail": detail})
    found += _disagreeing(frame, disagreement)
    return pd.DataFrame(found, columns=_COLUMNS)


def _possible(counter: Counter) -> tuple[float, float]:
    low = 0.0 if counter.unit in _NEVER_NEGATIVE else -np.inf
    return low, 100.0 if counter.unit == "%" else np.inf


def _judged(
    axis: Axis, counts: NDArray[np.int64], low: float, high: float
) -> Iterator[tuple[str, float, str]]:
    """Reasons with their shares. The bin that holds a limit may be right: only those beyond count."""
    total = counts.sum()
    if not total:
        return
    edges = np.concatenate(([-np.inf], axis.edges(), [np.inf]))
    above, below = edges[:-1] > high, edges[1:] <= low
    yield "above the possible", float(counts[above].sum() / total), f"above {high:g}"
    yield "below the possible", float(counts[below].sum() / total), f"below {low:g}"
    fullest = int(counts.argmax())
    if fullest in (0, axis.bins - 1) and counts[fullest] == total:
        side = f"below {edges[1]:g}" if fullest == 0 else f"from {edges[-2]:g} on"
        yield "one value only", 1.0, f"all samples lie {side}: wrong unit, or a counter the driver lacks"


def _disagreeing(frame: pd.DataFrame, ratio: float) -> list[dict[str, object]]:
    """The same counter and unit, of the same class, from two sources with far medians."""
    medians: dict[tuple[str, str, str, str], list[tuple[str, str, float]]] = {}
    for name in frame.attrs.get("counter_sets", {}):
        known = counter_set_of(frame, name)
        keys, counts = per_class(frame, name)
        noise = noise_per_class(frame, name)
        for axis, counter in enumerate(known.counters if known.axes else ()):
            for place, key in enumerate(keys.itertuples(index=False)):
                median = percentile_along(known, counts[place], axis, 0.5, float(noise[place])).value
                group = (str(key.label), str(key.gpu_model), counter.name, counter.unit)
                medians.setdefault(group, []).append((name, counter.source, median))
    found: list[dict[str, object]] = []
    for (label, model, counter_name, unit), seen in medians.items():
        for (name, source, one), (_, other_source, other) in combinations(seen, 2):
            far = one > 0 and other > 0 and max(one, other) / min(one, other) >= ratio
            if source != other_source and far:
                detail = f"{one:.3g} {unit} against {other:.3g} {unit} from {other_source}"
                values = (label, model, name, counter_name, source, "sources disagree", np.nan, detail)
                found.append(dict(zip(_COLUMNS, values, strict=True)))
    return found
