"""Coverage in closed form: how likely, and how soon, every kernel of an application is sampled."""

from __future__ import annotations

import math

from penrose_ray.errors import ConfigError


def hit_probability(sampling_interval: float, launches: float) -> float:
    """Probability that at least one of `launches` launches of a kernel is sampled: 1 - (1 - 1/S)^u.

    Args:
        sampling_interval: S >= 1.
        launches: u >= 0, over the whole fleet.
    """
    _require_interval(sampling_interval)
    if launches < 0:
        raise ConfigError(f"launches = {launches} is negative.", remedy="Give 0 or more.")
    if sampling_interval == 1:
        return float(launches > 0)
    return -math.expm1(launches * math.log1p(-1 / sampling_interval))


def launches_for(sampling_interval: float, probability: float) -> float:
    """Launches of a kernel after which it was sampled with `probability` (0 to below 1)."""
    _require_interval(sampling_interval)
    if not 0 <= probability < 1:
        raise ConfigError(f"probability = {probability} is outside [0, 1).", remedy="Give a share below 1.")
    if sampling_interval == 1:
        return float(probability > 0)
    return math.log1p(-probability) / math.log1p(-1 / sampling_interval)


def hours_to_coverage(
    target: float, *, sampling_interval: float, launches_per_s: float, share: float = 1.0, gpus: int = 1
) -> float:
    """Hours until a kernel that makes up `share` of a fleet's launches is sampled with probability `target`.

    Args:
        target: 0 to below 1.
        sampling_interval: S.
        launches_per_s: of one GPU, while it is busy or on average.
        share: of all launches of these GPUs, above 0 to 1.
        gpus: that run the application.
    """
    for name, value in (("launches_per_s", launches_per_s), ("share", share), ("gpus", gpus)):
        if value <= 0:
            raise ConfigError(f"{name} = {value} is not positive.", remedy=f"Give a {name} above 0.")
    return launches_for(sampling_interval, target) / (launches_per_s * share * gpus) / 3600


def _require_interval(sampling_interval: float) -> None:
    if sampling_interval < 1:
        raise ConfigError(
            f"sampling_interval = {sampling_interval} is below 1.", remedy="Sample one launch in S >= 1."
        )
