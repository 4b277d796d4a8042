"""Who runs what: the share of the fleet's GPU time that each application gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.sim.workloads import Workload

_TOLERANCE = 1e-6
_SUM_TO_ONE = "Give shares between 0 and 1 that sum to 1."


@dataclass(frozen=True, slots=True)
class Mix:
    """A rule for time shares."""

    group_shares: tuple[float, ...] = ()
    """GPU time share of each group of applications; empty leaves them equal."""
    zipf: float = 0.0
    """Inside a group the runs of the i-th application fall as i^-zipf; 0 is uniform time."""


def time_shares(mix: Mix, workload: Workload) -> NDArray[np.float64]:
    """Share q of busy GPU time of each application; sums to 1.

    Raises:
        ConfigError: shares that are negative, do not sum to 1, or do not fit the groups.
    """
    if mix.zipf < 0:
        raise ConfigError(f"zipf = {mix.zipf} is negative.", remedy="Give 0 (uniform) or more.")
    groups = int(workload.group.max()) + 1
    weight = np.ones(len(workload))
    if mix.zipf:  # popularity is counted in runs, so a longer application takes more time
        weight = workload.run_s * _rank(workload.group).astype(np.float64) ** -mix.zipf
    if not mix.group_shares:
        return np.asarray(weight / weight.sum(), np.float64)
    shares = np.asarray(mix.group_shares, np.float64)
    if len(shares) != groups:
        raise ConfigError(
            f"group_shares: {len(shares)} shares for {groups} groups of applications.", remedy=_SUM_TO_ONE
        )
    require_shares("group_shares", shares)
    in_group = np.bincount(workload.group, weight, groups)
    return np.asarray(weight * (shares / in_group)[workload.group], np.float64)


def require_shares(name: str, shares: NDArray[np.float64]) -> None:
    """Raise ConfigError, naming the field, unless these are shares of a whole."""
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise ConfigError(f"{name}: a share is negative.", remedy=_SUM_TO_ONE)
    if abs(float(shares.sum()) - 1) > _TOLERANCE:
        raise ConfigError(f"{name}: the shares sum to {shares.sum():g}, not 1.", remedy=_SUM_TO_ONE)


def _rank(group: NDArray[np.int64]) -> NDArray[np.int64]:
    """1, 2, 3 ... in each group, in the order of the rows."""
    rank = np.empty(len(group), np.int64)
    for each in range(int(group.max()) + 1):
        mine = np.flatnonzero(group == each)
        rank[mine] = np.arange(1, len(mine) + 1)
    return rank
