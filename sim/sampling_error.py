"""How wrong a sampled histogram is, and when sampling more makes it worse.

A bin of mass p among n samples has relative standard error sqrt((1 - p) / (n p)). With z for 99.3 % of a
normal distribution, a bin is off by less than 1 % when n p / (1 - p) >= (z / 0.01)^2 = 72,730.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

CONFIDENCE = 0.993
ERROR = 0.01


def deviations(confidence: float = CONFIDENCE) -> float:
    """Standard deviations that a normal variable keeps within, both sides, with this probability."""
    return NormalDist().inv_cdf((1 + confidence) / 2)


def samples_for_bin(mass: float, error: float = ERROR, confidence: float = CONFIDENCE) -> float:
    """Samples after which a bin of this mass is off by less than `error` of itself."""
    if not 0 < mass < 1:
        raise ConfigError(f"mass = {mass} is no share.", remedy="Give above 0 and below 1.")
    return (deviations(confidence) / error) ** 2 * (1 - mass) / mass


def least_mass(samples: float, error: float = ERROR, confidence: float = CONFIDENCE) -> float:
    """Smallest mass of a bin that is off by less than `error` of itself."""
    if samples <= 0:
        raise ConfigError(f"samples = {samples} is not positive.", remedy="Give more than 0.")
    needed = (deviations(confidence) / error) ** 2
    return needed / (needed + samples)


def samples_for_mean(variation: float, error: float = ERROR, confidence: float = CONFIDENCE) -> float:
    """Samples after which a mean with this coefficient of variation is off by less than `error`."""
    if variation < 0:
        raise ConfigError(f"variation = {variation} is negative.", remedy="Give 0 or more.")
    return (deviations(confidence) / error * variation) ** 2


def error_curve(
    masses: NDArray[np.float64], samples: Sequence[int], *, trials: int = 20, seed: int = 0
) -> pd.DataFrame:
    """Share of bins that are off by less than 1 %, as samples grow.

    Args:
        masses: of the bins, shape (bins,), summing to 1.
        samples: numbers of samples to draw.
        trials: histograms drawn for each.
        seed: of the draws.

    Returns:
        samples, relative (share of bins off by less than 1 % of themselves), weighted (the same by mass),
        absolute (share off by less than 1 % of all samples).
    """
    if abs(float(masses.sum()) - 1) > 1e-9 or (masses < 0).any():  # noqa: PLR2004 - rounding
        raise ConfigError("masses: they do not sum to 1.", remedy="Divide them by their sum.")
    rng = np.random.default_rng(seed)
    some = masses > 0
    rows = []
    for count in samples:
        drawn = rng.multinomial(count, masses, trials) / count
        off = np.abs(drawn - masses)
        within = off[:, some] <= ERROR * masses[some]
        rows.append(
            {
                "samples": count,
                "relative": float(within.mean()),
                "weighted": float((within * masses[some]).sum(axis=1).mean()),
                "absolute": float((off <= ERROR).mean()),
            }
        )
    return pd.DataFrame(rows)


def error_of_interval(
    interval: NDArray[np.float64] | float, *, executions: float, variation: float, slowdown: float = 1.4
) -> NDArray[np.float64]:
    """Relative error of a counter's mean at a position: bias by perturbation and noise by few samples.

    err^2 = (h / S)^2 + c^2 S / M. Measuring a launch costs h launches' time, so it changes what it measures;
    the published overhead of 0.014 % at S = 10,000 gives h = 1.4.

    Args:
        interval: S.
        executions: M, of the position in the whole fleet.
        variation: c, coefficient of variation of the counter.
        slowdown: h.
    """
    s = np.asarray(interval, np.float64)
    return np.asarray(np.sqrt((slowdown / s) ** 2 + variation**2 * s / executions), np.float64)


def best_interval(*, executions: float, variation: float, slowdown: float = 1.4) -> float:
    """S with the least error, (2 h^2 M / c^2)^(1/3): below it, more sampling is worse data."""
    for name, value in (("executions", executions), ("variation", variation), ("slowdown", slowdown)):
        if value <= 0:
            raise ConfigError(f"{name} = {value} is not positive.", remedy="Give more than 0.")
    return float((2 * slowdown**2 * executions / variation**2) ** (1 / 3))
