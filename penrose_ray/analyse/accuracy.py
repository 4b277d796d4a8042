"""How many samples and contributors right numbers take, by theory.

Two errors are told apart: sampling (not every launch is seen) and noise (added on purpose before a release is
opened). Neither covers how the GPUs that took part differ from the others.
"""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.analyse.intervals import z_of
from penrose_ray.histogram import BINS

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_HALVINGS = 200


def samples_for_share(
    share: ArrayLike, *, relative: float = 0.01, confidence: float = 0.993
) -> NDArray[np.float64]:
    """Samples so that a bin's count is within `relative` of its expectation, `confidence` of the time.

    Binomial: n = (z / relative)^2 (1 - p) / p; with the defaults 72,730 (1 - p) / p.
    """
    p = np.asarray(share, np.float64)
    return (z_of(confidence) / relative) ** 2 * (1.0 - p) / p


def samples_for_mean(variation: float, *, relative: float = 0.01, confidence: float = 0.993) -> float:
    """Samples so that a counter's mean is within `relative`, given its coefficient of variation."""
    return (z_of(confidence) * variation / relative) ** 2


def bins_within(counts: ArrayLike, expected: ArrayLike, *, relative: float = 0.01) -> float:
    """Share of the bins with an expectation above 0 whose count is within `relative` of it."""
    seen, wanted = np.asarray(counts, np.float64), np.asarray(expected, np.float64)
    seen, wanted = np.broadcast_arrays(seen, wanted)
    filled = wanted > 0
    return float((np.abs(seen[filled] - wanted[filled]) < relative * wanted[filled]).mean())


def sensitivity(samples_per_histogram: int, reports_per_class: int = 1) -> float:
    """Euclidean change of a sum when one client's reports are replaced: all its samples change their bin."""
    return math.sqrt(2.0) * samples_per_histogram * reports_per_class


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
    return math.ceil(sigma * BINS / (relative * samples_per_histogram))


def best_interval(executions: float, variation: float, perturbation: float) -> float:
    """The sampling interval S with the least error, for a position that runs `executions` times in the fleet.

    Sampling a launch disturbs it by `perturbation` launch times, so that less sampling biases less:
    err^2 = (h / S)^2 + c^2 S / M is least at S = (2 h^2 M / c^2)^(1/3). More sampling is not always better
    data.
    """
    return math.cbrt(2.0 * perturbation**2 * executions / variation**2)
