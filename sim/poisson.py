"""Poisson mode: samples come independently, so each step thins what is left binomially.

An application's cells all have one rate, hence one binomial draw an application and step whatever the number
of clients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.sim.scenario import Scenario


def covered_by_poisson(
    scenario: Scenario, *, steps: int, step_s: float, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Covered cells after 0 to `steps` steps, shape (steps + 1, applications)."""
    cells = scenario.cells
    hit = -np.expm1(-scenario.rate_per_s * step_s)
    left = np.empty((steps + 1, len(cells)), np.int64)
    left[0] = cells
    for step in range(steps):
        left[step + 1] = left[step] - rng.binomial(left[step], hit)
    return cells - left
