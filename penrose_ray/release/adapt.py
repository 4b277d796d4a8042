"""Adapting to the data without giving it away: when to release, or how noisily, from what is public.

Both sound variants are here. `reports_for` keeps the noise fixed and says how long to wait. `PrivacyFilter`
lets each noise level follow from earlier noisy outputs. A level that follows from the data (`tanh_sigma`) is
unsound; it is kept for the test that shows how it fails.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from penrose_ray.crypto.packing import BINS
from penrose_ray.release.budget import epsilon

if TYPE_CHECKING:
    from penrose_ray.task import Task


def reports_for(task: Task, relative_error: float) -> int:
    """Fewest reports with which one sigma of noise is `relative_error` of an average bin, N H / 128.

    The number of reports is public, so waiting for it spends nothing.
    """
    return math.ceil(task.noise_sigma * BINS / (task.samples_per_histogram * relative_error) - 1e-9)


class PrivacyFilter:
    """Admits Gaussian releases until the budget is used up, each of any noise level.

    The level may depend on earlier outputs (Feldman and Zrnic 2021, theorem 4.3); never on the data.
    """

    def __init__(self, budget_epsilon: float, delta: float) -> None:
        self._epsilon = budget_epsilon
        self._delta = delta
        self._admitted: list[float] = []

    def admits(self, noise_multiplier: float) -> bool:
        """Book a release of that noise multiplier, or refuse it and book nothing."""
        if epsilon([*self._admitted, noise_multiplier], self._delta) > self._epsilon:
            return False
        self._admitted.append(noise_multiplier)
        return True


def tanh_sigma(base: float, norm: float, median_norm: float) -> float:
    """A rule that is NOT private: noise of base (1 + tanh((norm - median) / (0.1 median)) / 2).

    The norm is private, so the size of the noise tells it; and below the median the noise is under `base`.
    """
    return base * (1 + 0.5 * math.tanh((norm - median_norm) / (0.1 * median_norm)))
