"""Applications as the simulator sees them: how many launches a run has and how long a launch takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Workload:
    """Columns, one row an application. An application repeats a cycle of `launches` positions."""

    launches: NDArray[np.int64]
    """k: positions of a cycle, each of which has to be sampled."""
    launch_s: NDArray[np.float64]
    """Mean seconds of a launch."""
    group: NDArray[np.int64]
    """Position of the application's group, for mixes that favour a group."""

    def __post_init__(self) -> None:
        """Refuse an empty workload and values that no GPU has."""
        if len(self.launches) == 0:
            raise ConfigError("apps = 0: there is no application.", remedy="Give at least one application.")
        if (self.launches < 1).any():
            raise ConfigError("launches: a cycle has no launch.", remedy="Give 1 or more.")
        if not (np.isfinite(self.launch_s) & (self.launch_s > 0)).all():
            raise ConfigError("launch_s: a launch takes no time.", remedy="Give seconds above 0.")

    def __len__(self) -> int:
        return len(self.launches)

    @property
    def run_s(self) -> NDArray[np.float64]:
        """T: GPU seconds of one cycle."""
        return self.launches * self.launch_s


@dataclass(frozen=True, slots=True)
class Group:
    """Applications alike."""

    apps_share: float
    """Share of all applications, 0 to 1."""
    run_s: float
    """GPU seconds of one cycle."""
    launch_us: float = 30.0
    """Mean duration of a launch."""
    spread: float = 0.0
    """Cycles are spread evenly over run_s (1 - spread) to run_s (1 + spread)."""


def grouped(apps: int, groups: Sequence[Group]) -> Workload:
    """`apps` applications spread over groups by their `apps_share`, rounded so that all are there."""
    if apps < 1:
        raise ConfigError(f"apps = {apps}: there is no application.", remedy="Give at least one.")
    total = sum(each.apps_share for each in groups)
    if not groups or abs(total - 1) > 1e-9:  # noqa: PLR2004 - rounding of decimal shares
        raise ConfigError(
            f"apps_share: the groups' shares sum to {total:g}, not 1.", remedy="Correct the shares."
        )
    ends = np.rint(np.cumsum([each.apps_share for each in groups]) * apps).astype(np.int64)
    group = np.searchsorted(ends, np.arange(apps), side="right")
    launch_s = np.array([each.launch_us for each in groups])[group] * 1e-6
    run_s = np.array([each.run_s for each in groups])[group]
    run_s *= 1 + np.array([each.spread for each in groups])[group] * _spread_evenly(group)
    return Workload(np.maximum(np.rint(run_s / launch_s), 1).astype(np.int64), launch_s, group)


def _spread_evenly(group: NDArray[np.int64]) -> NDArray[np.float64]:
    """Numbers between -1 and 1, evenly spaced in each group and 0 on average."""
    place = np.zeros(len(group))
    for each in range(int(group.max()) + 1):
        mine = np.flatnonzero(group == each)
        place[mine] = (np.arange(len(mine)) + 0.5) / max(1, len(mine)) * 2 - 1
    return place


def lognormal(apps: int, *, median_run_s: float, sigma: float, launch_us: float, seed: int) -> Workload:
    """Applications whose cycles are log-normally long, as recorded programs are roughly."""
    if apps < 1:
        raise ConfigError(f"apps = {apps}: there is no application.", remedy="Give at least one.")
    rng = np.random.default_rng(seed)
    run_s = median_run_s * np.exp(sigma * rng.standard_normal(apps))
    launches = np.maximum(np.rint(run_s / (launch_us * 1e-6)), 1).astype(np.int64)
    longer = (launches > np.median(launches)).astype(np.int64)
    return Workload(launches, np.full(apps, launch_us * 1e-6), longer)


def repeated(workload: Workload, apps: int) -> Workload:
    """`apps` applications that take the rows of `workload` in turn, their cycles varied by up to 20 %.

    A handful of recorded programs stands for a fleet's thousands: copies get cycles of other lengths, so that
    they do not alias all together.
    """
    turn = np.arange(apps)
    source = turn % len(workload)
    factor = 1 + 0.2 * np.modf(turn // len(workload) * 0.6180339887498949)[0]
    launches = np.maximum(np.rint(workload.launches[source] * factor), 1).astype(np.int64)
    return Workload(launches, workload.launch_s[source], workload.group[source])
