"""Percentiles of noisy histograms, with intervals.

Taken straight from noisy counts, a percentile follows the sum of the noise in all empty bins, and a single
bin can move the 95th by half an axis. Here only the bins that stand out of the noise count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penrose_ray.accuracy import z_of
from penrose_ray.analyse.intervals import CONFIDENCE
from penrose_ray.histogram import marginal, quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.histogram import Axis, CounterSet

PERCENTILES = ("p50", "p50_low", "p50_high", "p95", "p95_low", "p95_high")
"""Columns that hold the median and the 95th percentile in tables."""
_WINDOWS = (1, 3, 5, 9)
"""Widths in bins: a narrow peak stands out alone, a broad slope only together."""
_REST_SIGMAS = 3.0


class Percentile(NamedTuple):
    """In the axis' unit; NaN where nothing stands out of the noise."""

    value: float
    low: float
    high: float


def percentile(
    axis: Axis, counts: NDArray[np.int64], share: float, sigma: float = 0.0, *, confidence: float = CONFIDENCE
) -> Percentile:
    """Value below which `share` of the samples lie, with its interval.

    The interval is that of order statistics, which needs no assumption about the distribution: sampling moves
    the rank of the value, and so does noise, of the bins below it and of those above. It takes the noise of
    empty bins for possible samples, so that it rather holds the truth too often than too seldom. Where too
    few samples, or too much noise, leave an end open, it is `axis.low` or `axis.high`.

    Args:
        axis: of the counts.
        counts: along this axis, shape (axis.bins,).
        share: 0 to 1.
        sigma: standard deviation of the noise in each count.
        confidence: share of intervals that hold the true value.
    """
    shape = standing_out(counts, sigma)
    samples = float(shape.sum())
    if samples <= 0:
        return Percentile(np.nan, np.nan, np.nan)
    below = int(np.searchsorted(np.cumsum(shape), share * samples))
    noise = sigma**2 * (below * (1 - share) ** 2 + (axis.bins - below) * share**2)
    off = z_of(confidence) * np.sqrt(samples * share * (1 - share) + noise) / samples
    return Percentile(
        quantile(axis, shape, share),
        quantile(axis, shape, share - off) if share > off else axis.low,
        quantile(axis, shape, share + off) if share + off < 1 else axis.high,
    )


def percentile_along(
    counter_set: CounterSet, counts: NDArray[np.int64], axis: int, share: float, sigma: float = 0.0
) -> Percentile:
    """`percentile` of one counter of a set's 128 counts; `sigma` is that of each of the 128."""
    along = counter_set.axes[axis]
    noise = sigma * np.sqrt(len(counts) / along.bins)
    return percentile(along, marginal(counter_set, counts, axis), share, float(noise))


def standing_out(counts: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    """What noisy counts say of the true ones, none negative; all as they are without noise.

    A bin is kept when it lies in a window of 1, 3, 5 or 9 bins whose sum is above what noise reaches in any
    window (sigma sqrt(2 ln windows), as for `histogram.above_noise`). Where the bins that are left
    hold more together than noise explains, all are kept. The kept ones are projected on non-negative counts
    of the same sum, the nearest ones by least squares (Duchi et al., ICML 2008).

    Args:
        counts: along one axis, shape (bins,).
        sigma: standard deviation of the noise in each count.
    """
    if sigma <= 0:
        return counts.astype(np.float64)
    bins = len(counts)
    sums = np.concatenate(([0], np.cumsum(counts)))
    threshold = sigma * np.sqrt(2 * np.log(len(_WINDOWS) * bins))
    kept = np.zeros(bins, np.bool_)
    for width in _WINDOWS:
        for first in np.flatnonzero(sums[width:] - sums[:-width] >= threshold * np.sqrt(width)):
            kept[first : first + width] = True
    rest = counts[~kept]
    if rest.sum() > _REST_SIGMAS * sigma * np.sqrt(len(rest)):
        kept[:] = True
    shape = np.zeros(bins)
    if kept.any():
        shape[kept] = _projected(counts[kept].astype(np.float64))
    return shape


def _projected(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest counts of the same sum, above 0, of which none is negative."""
    descending = np.sort(counts)[::-1]
    excess = (np.cumsum(descending) - counts.sum()) / np.arange(1, len(counts) + 1)
    last = int(np.flatnonzero(descending > excess)[-1])
    return np.asarray(np.clip(counts - excess[last], 0.0, None), np.float64)
