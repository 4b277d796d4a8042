"""What a client counts: counters, bin edges and 128-bin histograms.

A histogram has exactly 128 bins. Intervals are closed on the left and open on the right; the first bin of
an axis takes everything below `low` and the last one everything from `high` on, so no measured value is
lost. A value that was not measured is NaN and is not counted, never 0.
"""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING, Literal

import msgspec
import numpy as np

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

BINS = 128


class Counter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One measured quantity. Values of different sources or vendors are never added."""

    name: str
    """Such as `duration`."""
    unit: str
    """Such as `ns`; empty for a count or a kind."""
    source: str
    """Which back end measures it, such as `opencl` or `cupti`."""
    vendor: str
    """Whose device: `nvidia`, `amd`, `intel`, `pocl` or `any`."""

    @property
    def label(self) -> str:
        """Text for tables and figures, such as `duration [ns] (opencl)`."""
        return f"{self.name} [{self.unit}] ({self.source})"


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bins along one counter: `bins` - 2 between `low` and `high`, one below and one above."""

    scale: Literal["linear", "log"]
    """Equal bins, or equal ratios."""
    low: float
    """Upper edge of the first bin, in the counter's unit."""
    high: float
    """Lower edge of the last bin."""
    bins: int = BINS
    """How many, the two open ones included."""

    def edges(self) -> NDArray[np.float64]:
        """The `bins` - 1 inner edges, ascending, in the counter's unit."""
        return _edges(self)

    def centres(self) -> NDArray[np.float64]:
        """A representative value for each of the `bins` bins.

        The middle of the interval (geometric on a log axis); `low` and `high` for the open-ended bins, so
        a mean over them is a lower bound of what lies above and an upper bound of what lies below.
        """
        edges = self.edges()
        middle = np.sqrt(edges[:-1] * edges[1:]) if self.scale == "log" else (edges[:-1] + edges[1:]) / 2
        return np.concatenate(([self.low], middle, [self.high]))

    def index(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Bin of each value; the values must not be NaN."""
        return np.searchsorted(self.edges(), values, side="right").astype(np.int64)


@functools.lru_cache(maxsize=256)
def _edges(axis: Axis) -> NDArray[np.float64]:
    spaced = np.geomspace if axis.scale == "log" else np.linspace
    edges = spaced(axis.low, axis.high, axis.bins - 1)
    edges.flags.writeable = False
    return edges


class CounterSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Counters that one histogram shows together.

    One axis of 128 bins, two axes whose bins multiply to 128 (16 x 8: a joint histogram, the second counter
    runs fastest), or up to 128 categories of one integer-valued counter.
    """

    name: str
    """Unique in the task."""
    counters: tuple[Counter, ...]
    """One counter an axis."""
    axes: tuple[Axis, ...] = ()
    """One for 128 bins, two for a joint histogram."""
    categories: tuple[str, ...] = ()
    """Names of the values of an integer counter, instead of axes."""

    def check(self) -> None:
        """Raise ConfigError when the bins do not come to 128 or do not fit the counters."""
        if self.categories:
            self._require(not self.axes, "categories and axes exclude one another")
            self._require(len(self.counters) == 1, "a categorical set has exactly one counter")
            self._require(len(self.categories) <= BINS, f"at most {BINS} categories fit")
            return
        self._require(len(self.axes) in (1, 2), "one or two axes, or categories, are needed")
        self._require(len(self.axes) == len(self.counters), "each counter needs its own axis")
        for axis in self.axes:
            self._require(np.isfinite([axis.low, axis.high]).all(), "low and high must be finite")
            self._require(axis.low < axis.high, f"low {axis.low} must be below high {axis.high}")
            self._require(axis.scale == "linear" or axis.low > 0, "a log axis starts above 0")
            self._require(axis.bins >= 3, "an axis needs 3 bins or more")  # noqa: PLR2004 - under, one, over
        total = int(np.prod([axis.bins for axis in self.axes]))
        self._require(total == BINS, f"the bins multiply to {total}, not {BINS}")
        for axis in self.axes:
            self._require((np.diff(axis.edges()) > 0).all(), "low and high are too close for so many bins")

    def _require(self, condition: bool | np.bool_, reason: str) -> None:  # noqa: FBT001 - an assertion's shape
        if not condition:
            raise ConfigError(
                f"Counter set {self.name!r}: {reason}.", remedy="Correct it in the task's counter_sets."
            )

    def bin_of(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """Bin (0 to 127) of each row of `values`, shape (n, number of counters), without NaN."""
        if self.categories:
            return np.clip(values[:, 0], 0, len(self.categories) - 1).astype(np.int64)
        index = self.axes[0].index(values[:, 0])
        for column, axis in enumerate(self.axes[1:], start=1):
            index = index * axis.bins + axis.index(values[:, column])
        return index

    def labels(self) -> tuple[str, ...]:
        """A text per bin: categories, or `[low, high)` of each axis."""
        if self.categories:
            return self.categories + ("",) * (BINS - len(self.categories))
        per_axis = [_interval_labels(axis) for axis in self.axes]
        return tuple(" x ".join(parts) for parts in itertools.product(*per_axis))


def _interval_labels(axis: Axis) -> list[str]:
    edges = axis.edges()
    inner = [f"[{low:.4g}, {high:.4g})" for low, high in itertools.pairwise(edges)]
    return [f"< {edges[0]:.4g}", *inner, f">= {edges[-1]:.4g}"]


def count(counter_set: CounterSet, values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Histogram of `values`, shape (n, number of counters); rows with a NaN are left out.

    Returns:
        128 counts, int64.
    """
    measured = values[~np.isnan(values).any(axis=1)]
    return np.bincount(counter_set.bin_of(measured), minlength=BINS).astype(np.int64)


def marginal(counter_set: CounterSet, counts: NDArray[np.int64], axis: int = 0) -> NDArray[np.int64]:
    """Counts along one axis of a (joint) histogram, the others summed out."""
    if not counter_set.axes:
        return counts
    grid = counts.reshape([each.bins for each in counter_set.axes])
    others: Sequence[int] = [index for index in range(grid.ndim) if index != axis]
    return np.asarray(grid.sum(axis=tuple(others)), np.int64)


def mean(axis: Axis, counts: NDArray[np.int64]) -> float:
    """Mean by bin centres in the axis' unit; NaN for a histogram that is empty, or below 0 by noise."""
    total = counts.sum()
    return float((axis.centres() * counts).sum() / total) if total > 0 else float("nan")


def quantile(axis: Axis, counts: NDArray[np.int64] | NDArray[np.float64], share: float) -> float:
    """Value below which `share` (0 to 1) of the samples lie, interpolated inside its bin; NaN when empty.

    No count may be negative: `analyse.percentiles` is for counts with noise.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    cumulative = np.cumsum(counts)
    total = cumulative[-1]
    if total <= 0:
        return float("nan")
    wanted = share * total
    bin_ = max(int(np.searchsorted(cumulative, wanted)), int(np.argmax(counts > 0)))
    if bin_ in (0, axis.bins - 1):
        return axis.low if bin_ == 0 else axis.high
    low, high = axis.edges()[bin_ - 1], axis.edges()[bin_]
    part = (wanted - cumulative[bin_ - 1]) / (cumulative[bin_] - cumulative[bin_ - 1])
    return float(low * (high / low) ** part if axis.scale == "log" else low + (high - low) * part)


def above_noise(counts: NDArray[np.int64], sigma: ArrayLike) -> NDArray[np.int64]:
    """Counts without those that noise alone explains: for means, in which a stray far bin weighs a lot.

    The threshold is the universal one, sigma sqrt(2 ln bins) (Donoho and Johnstone, Biometrika 81, 1994): all
    bins of an empty histogram fall below it with high probability. What is really below it is lost, too.

    Args:
        counts: shape (..., bins).
        sigma: standard deviation of the noise in each count, shape (...); 0 leaves counts as they are.
    """
    noise = np.asarray(sigma, np.float64)[..., None]
    threshold = noise * np.sqrt(2 * np.log(counts.shape[-1]))
    return np.where((noise > 0) & (counts < threshold), 0, counts)


def median_of_means(sums: ArrayLike, values: ArrayLike) -> float:
    """A robust mean of a counter from the sub-batches of one class and counter set.

    With fewer than half of the sums spoiled it lies within the range of the clean ones' means (Lugosi and
    Mendelson 2019).

    Args:
        sums: counts, shape (sub-batches, bins).
        values: what a sample in each bin counts for, shape (bins,).

    Returns:
        NaN when no sub-batch holds a sample.
    """
    counts = np.asarray(sums, np.float64)
    totals = counts.sum(axis=1)
    filled = totals > 0
    if not filled.any():
        return float("nan")
    return float(np.median(counts[filled] @ np.asarray(values, np.float64) / totals[filled]))
