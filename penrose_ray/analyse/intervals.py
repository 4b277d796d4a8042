"""Confidence intervals of shares.

They show the error of sampling launches. How much the GPUs that reported differ from those that did not is
another matter, which no figure inside a release can tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.accuracy import z_of

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95


def wilson(
    counts: ArrayLike, samples: ArrayLike, *, confidence: float = CONFIDENCE
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Score interval of counts / samples; NaN where there is no sample.

    Unlike the textbook interval it stays inside 0 to 1 and keeps its coverage for rare bins
    (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927).

    Args:
        counts: hits, any shape; a count that noise made negative counts as 0.
        samples: trials, broadcast against counts.
        confidence: share of intervals that hold the true share.

    Returns:
        Lower and upper ends, float64.
    """
    trials = np.asarray(samples, np.float64)
    z2 = z_of(confidence) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.clip(np.asarray(counts, np.float64) / trials, 0.0, 1.0)
        scale = 1.0 / (1.0 + z2 / trials)
        centre = (share + z2 / (2.0 * trials)) * scale
        half = np.sqrt(z2 * (share * (1.0 - share) / trials + z2 / (4.0 * trials**2))) * scale
    return np.where(share == 0, 0.0, centre - half), np.where(share == 1, 1.0, centre + half)


def weighted_share(
    counts: NDArray[np.int64],
    weights: NDArray[np.float64],
    members: NDArray[np.bool_],
    *,
    sigma: ArrayLike = 0.0,
    confidence: float = CONFIDENCE,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Share of a weighted total, such as time, that falls into some bins, with its interval.

    The interval is the ratio estimator's, linearised (W. G. Cochran, Sampling Techniques, 1977, section 6.4),
    with independent samples; NaN where there is no sample.

    Args:
        counts: shape (..., bins).
        weights: what one sample of each bin weighs, shape (bins,).
        members: the bins that count, shape (bins,).
        sigma: standard deviation of the noise in each count, shape (...).
        confidence: share of intervals that hold the true share.

    Returns:
        Share, lower and upper end, each of shape (...).
    """
    total = (counts * weights).sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (counts * weights * members).sum(axis=-1) / total
        off = weights * (members - share[..., None])
        noise = np.asarray(sigma, np.float64) ** 2 * (off**2).sum(axis=-1)
        sampling = (np.clip(counts, 0, None) * off**2).sum(axis=-1)
        half = z_of(confidence) * np.sqrt(sampling + noise) / total
    return share, np.clip(share - half, 0.0, 1.0), np.clip(share + half, 0.0, 1.0)


def noisy_share(
    counts: ArrayLike, samples: ArrayLike, sigma: ArrayLike, *, confidence: float = CONFIDENCE
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Shares with intervals of sampling and noise together.

    Without noise it is Wilson's. With noise the half widths of both add in squares on each side, cut to 0
    and 1; `samples` may be a noisy total itself, whose error is small against a bin's.

    Args:
        counts: bins, negative ones too.
        samples: totals.
        sigma: standard deviation of the noise in each count.
        confidence: share of intervals that hold the true share.

    Returns:
        Share, lower and upper end.
    """
    total = np.asarray(samples, np.float64)
    low, high = wilson(counts, total, confidence=confidence)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.asarray(counts, np.float64) / total
        noise = z_of(confidence) * np.asarray(sigma, np.float64) / total
    inside = np.clip(share, 0.0, 1.0)
    lower = share - np.sqrt((inside - low) ** 2 + noise**2)
    upper = share + np.sqrt((high - inside) ** 2 + noise**2)
    return share, np.clip(lower, 0.0, 1.0), np.clip(upper, 0.0, 1.0)
