"""The bins of a counter set seen along one of its counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.analyse.frames import counter_set_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from penrose_ray.histogram import Axis, CounterSet


def nearest_edge(axis: Axis, wanted: float) -> float:
    """The bin edge next to a value: thresholds can lie on edges only."""
    edges = axis.edges()
    return float(edges[np.abs(edges - wanted).argmin()])


def places(counter_set: CounterSet, axis: int) -> NDArray[np.int64]:
    """Bin along one axis of each of the 128 bins."""
    shape = [each.bins for each in counter_set.axes]
    along: NDArray[np.int64] = np.indices(shape, dtype=np.int64)[axis].ravel()
    return along


def at_or_above(counter_set: CounterSet, axis: int, edge: float) -> NDArray[np.bool_]:
    """Which of the 128 bins lie at or above a bin edge of one axis."""
    first = int(counter_set.axes[axis].index(np.array([edge]))[0])
    return places(counter_set, axis) >= first


def values(counter_set: CounterSet, axis: int) -> NDArray[np.float64]:
    """A representative value along one axis for each of the 128 bins."""
    return counter_set.axes[axis].centres()[places(counter_set, axis)]


def set_with(frame: pd.DataFrame, *counters: str) -> str | None:
    """Name of the first counter set with axes that has exactly these counters, in any order."""
    for name in frame.attrs.get("counter_sets", {}):
        known = counter_set_of(frame, name)
        if known.axes and sorted(each.name for each in known.counters) == sorted(counters):
            return str(name)
    return None


def axis_of(counter_set: CounterSet, counter: str) -> int:
    """Position of a counter in its set."""
    return [each.name for each in counter_set.counters].index(counter)
