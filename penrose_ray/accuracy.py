"""How many samples and contributors right numbers take, by theory.

Two errors are told apart: sampling (not every launch is seen) and noise (added on purpose before a release is
opened). Neither covers how the GPUs that took part differ from the others.

A bin of share p among n samples has the relative standard error sqrt((1 - p) / (n p)). With z for 99.3 % of a
normal distribution it is off by less than 1 % when n p / (1 - p) >= (z / 0.01)^2 = 72,730.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.crypto.packing import BINS
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

RELATIVE, CONFIDENCE = 0.01, 0.993
"""The error that is aimed at, and how often it is to be kept."""
PERTURBATION = 1.4
"""Launch times that measuring one launch costs: the published overhead of 0.014 % at S = 10,000."""
_HALVINGS = 200


def z_of(confidence: float) -> float:
    """Two-sided normal quantile: 1.96 for 0.95."""
    return statistics.NormalDist().inv_cdf(0.5 + confidence / 2)


def samples_for_share(
    share: ArrayLike, *, relative: float = RELATIVE, confidence: float = CONFIDENCE
) -> NDArray[np.float64]:
    """Samples so that a bin's count is within `relative` of its expectation, `confidence` of the time.

    Binomial: n = (z / relative)^2 (1 - p) / p; with the defaults 72,730 (1 - p) / p.

    Raises:
        ConfigError: a share is not above 0 and at most 1.
    """
    p = np.asarray(share, np.float64)
    if not ((p > 0) & (p <= 1)).all():
        raise ConfigError(f"share = {share!r} is no share of a bin.", remedy="Give above 0, at most 1.")
    return (z_of(confidence) / relative) ** 2 * (1.0 - p) / p


def samples_for_mean(
    variation: float, *, relative: float = RELATIVE, confidence: float = CONFIDENCE
) -> float:
    """Samples so that a counter's mean is within `relative`, given its coefficient of variation.

    Raises:
        ConfigError: the variation is negative.
    """
    if variation < 0:
        raise ConfigError(f"variation = {variation} is negative.", remedy="Give 0 or more.")
    return (z_of(confidence) * variation / relative) ** 2


def bins_within(counts: ArrayLike, expected: ArrayLike, *, relative: float = RELATIVE) -> float:
    """Share of the bins with an expectation above 0 whose count is within `relative` of it."""
    seen, wanted = np.asarray(counts, np.float64), np.asarray(expected, np.float64)
    seen, wanted = np.broadcast_arrays(seen, wanted)
    filled = wanted > 0
    return float((np.abs(seen[filled] - wanted[filled]) < relative * wanted[filled]).mean())


def sensitivity(samples_per_histogram: int, *, tokens: int, reports_per_class: int = 1) -> float:
    """Most that one client changes all sums of a batch together, in samples (L2), whatever it had sent.

    Replacing n reports of a sum moves at most n H samples to another bin: sqrt(2) n H. A client has T tokens
    a batch and sends at most r reports for a sum, so that all its sums change by at most sqrt(2 r T) H.

    Args:
        samples_per_histogram: H.
        tokens: T, of one client in a batch.
        reports_per_class: r; 0 leaves the tokens as the only bound.
    """
    per_sum = min(reports_per_class or tokens, tokens)
    return math.sqrt(2 * per_sum * tokens) * samples_per_histogram


def noise_sigma(epsilon: float, delta: float, sensitivity_l2: float) -> float:
    """Least standard deviation of Gaussian noise for (epsilon, delta)-differential privacy.

    The exact condition of Balle and Wang (ICML 2018, theorem 8), solved by bisection. Discrete Gaussian
    noise of that size differs from it by less than anyone can measure (Canonne, Kamath, Steinke, 2020).
    """
    low, high = 1e-9, 1e3
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if _delta(epsilon, middle) <= delta else (middle, high)
    return high * sensitivity_l2


def _delta(epsilon: float, sigma: float) -> float:
    """Delta of Gaussian noise of `sigma` at sensitivity 1."""
    phi = statistics.NormalDist().cdf
    half, shift = 1.0 / (2.0 * sigma), epsilon * sigma
    tail = phi(-half - shift)
    return phi(half - shift) - (math.exp(epsilon + math.log(tail)) if tail > 0 else 0.0)


def noise_error(sigma: float, contributors: int, samples_per_histogram: int = 10_000) -> float:
    """Standard error that noise gives an average bin, relative to it: sigma / (N H / 128)."""
    return sigma * BINS / (contributors * samples_per_histogram)


def contributors_for(sigma: float, relative: float, samples_per_histogram: int = 10_000) -> int:
    """Contributors so that noise moves an average bin by `relative` (one standard error) at most."""
    return math.ceil(sigma * BINS / (relative * samples_per_histogram) - 1e-9)


def best_interval(executions: float, variation: float, perturbation: float = PERTURBATION) -> float:
    """The sampling interval S with the least error, for a position that runs `executions` times in the fleet.

    Sampling a launch disturbs it by `perturbation` launch times, so that less sampling biases less:
    err^2 = (h / S)^2 + c^2 S / M is least at S = (2 h^2 M / c^2)^(1/3). More sampling is not always better
    data.

    Raises:
        ConfigError: an argument is not above 0.
    """
    given = {"executions": executions, "variation": variation, "perturbation": perturbation}
    for name, value in given.items():
        if value <= 0:
            raise ConfigError(f"{name} = {value} is not positive.", remedy="Give more than 0.")
    return math.cbrt(2.0 * perturbation**2 * executions / variation**2)
