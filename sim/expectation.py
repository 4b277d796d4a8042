"""Expected coverage of a scenario, without drawing anything.

With random gaps a position of application a is missed until t with probability exp(-lambda_a t),
lambda_a = N rho q_a / (S T_a G). With a stride, a window of n samples visits d = min(n, k / gcd(S, k)) of k
positions, so after W windows it is missed with probability (1 - q_a d / (k G))^(N W).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import ConfigError
from penrose_ray.sim.coverage import Curve, expected, require_target

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.sim.coverage import Definition
    from penrose_ray.sim.scenario import Scenario

_MOST_HOURS = 1e9
_BISECTIONS = 100


def loss_per_s(scenario: Scenario) -> NDArray[np.float64]:
    """Rate at which the chance to have missed a cell decays, by application."""
    if scenario.sampling.sampler == "jitter":
        return scenario.rate_per_s
    return _stride_loss(scenario)


def _stride_loss(scenario: Scenario) -> NDArray[np.float64]:
    sampling, launches = scenario.sampling, scenario.workload.launches
    mean, ring = scenario.samples_per_window, launches // np.gcd(int(sampling.interval), launches)
    part = mean - np.floor(mean)
    busy = 1.0 if scenario.load_form == "duty" else scenario.load
    reached = (1 - part) * np.minimum(np.floor(mean), ring) + part * np.minimum(np.ceil(mean), ring)
    hit = busy * scenario.share * reached / (launches * sampling.counter_groups)
    with np.errstate(divide="ignore"):  # an application that fills a whole cycle in one window
        missed = np.log1p(-np.minimum(hit, 1))
    return np.asarray(-scenario.clients * missed / sampling.reset_s, np.float64)


def expected_curve(
    scenario: Scenario, hours: NDArray[np.float64], definition: Definition = "positions"
) -> Curve:
    """Expected coverage at these hours."""
    share = _covered(loss_per_s(scenario), hours)
    return Curve(hours, expected(definition, share, scenario), share[-1])


def expected_hours(scenario: Scenario, target: float, definition: Definition = "positions") -> float:
    """Hours until the expected coverage reaches `target`; infinite when an application never runs.

    Exact to 1e-12: found by bisection, not on a grid.
    """
    require_target(target)
    loss = loss_per_s(scenario)

    def coverage(hour: float) -> float:
        return float(expected(definition, _covered(loss, np.array([hour])), scenario)[0])

    high = 1.0
    while coverage(high) < target:
        high *= 2
        if high > _MOST_HOURS:
            return float("inf")
    low = 0.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if coverage(middle) < target else (low, middle)
    return high


def _covered(loss: NDArray[np.float64], hours: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of covered cells, shape (hours, applications)."""
    with np.errstate(invalid="ignore"):  # an infinite rate after no time at all
        exponent = np.outer(hours * 3600, loss)
    return np.asarray(-np.expm1(-np.nan_to_num(exponent, nan=0.0, posinf=np.inf)), np.float64)


def windows_to(target: float, *, interval: int, launches: int, samples: int, sampler: str) -> float:
    """Windows of one application until `target` of its positions are expected to be covered.

    Args:
        target: share, above 0 and below 1.
        interval: S.
        launches: k, the application's period.
        samples: n, taken in each window, each window from a new offset.
        sampler: `stride` or `jitter`.
    """
    require_target(target)
    if min(interval, launches, samples) < 1:
        raise ConfigError("interval, launches or samples is below 1.", remedy="Give 1 or more of each.")
    if sampler == "stride":
        missed = np.log1p(-min(samples, launches // np.gcd(interval, launches)) / launches)
    else:
        missed = samples * np.log1p(-1 / launches)
    return float(np.log1p(-target) / missed)
