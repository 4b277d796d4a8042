"""What "covered" means, and curves of it over time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, assert_never

import numpy as np

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.sim.scenario import Scenario

Definition = Literal["positions", "launches", "time", "full", "seen"]
"""`positions`: mean over applications of the covered share of their positions; `launches`: share of all
positions; `time`: like `positions`, weighted by GPU time; `full`: share of applications covered to the last
position; `seen`: share of applications with any sample. A position counts once for each counter group."""


@dataclass(frozen=True, eq=False)
class Curve:
    """Coverage over time."""

    hours: NDArray[np.float64]
    """Ascending, from 0."""
    coverage: NDArray[np.float64]
    """0 to 1, as long as `hours`."""
    by_app: NDArray[np.float64]
    """Covered share of each application's cells at the end."""

    def hours_to(self, target: float) -> float:
        """Hours until `target` is reached, else NaN; between two points 1 - C falls exponentially."""
        require_target(target)
        reached = np.flatnonzero(self.coverage >= target)
        if len(reached) == 0:
            return float("nan")
        after = int(reached[0])
        if after == 0:
            return float(self.hours[0])
        before, at = self.coverage[after - 1], self.coverage[after]
        if at >= 1 or before >= 1:
            part = (target - before) / (at - before)
        else:
            part = np.log((1 - before) / (1 - target)) / np.log((1 - before) / (1 - at))
        return float(self.hours[after - 1] + part * (self.hours[after] - self.hours[after - 1]))


def require_target(target: float) -> None:
    """Raise ConfigError unless this share can be reached."""
    if not 0 < target < 1:
        raise ConfigError(f"target = {target} is no share.", remedy="Give above 0 and below 1.")


def measured(definition: Definition, covered: NDArray[np.int64], scenario: Scenario) -> NDArray[np.float64]:
    """Coverage from counts of covered cells, shape (times, applications)."""
    cells = scenario.cells
    match definition:
        case "positions":
            return np.asarray((covered / cells).mean(axis=1), np.float64)
        case "launches":
            return np.asarray(covered.sum(axis=1) / cells.sum(), np.float64)
        case "time":
            return np.asarray((covered / cells) @ scenario.share, np.float64)
        case "full":
            return np.asarray((covered == cells).mean(axis=1), np.float64)
        case "seen":
            return np.asarray((covered > 0).mean(axis=1), np.float64)
    assert_never(definition)


def expected(definition: Definition, share: NDArray[np.float64], scenario: Scenario) -> NDArray[np.float64]:
    """Expected coverage when each cell is covered independently with `share`, shape (times, applications)."""
    cells = scenario.cells
    match definition:
        case "positions":
            return np.asarray(share.mean(axis=1), np.float64)
        case "launches":
            return np.asarray(share @ (cells / cells.sum()), np.float64)
        case "time":
            return np.asarray(share @ scenario.share, np.float64)
        case "full":
            return np.asarray((share**cells).mean(axis=1), np.float64)
        case "seen":
            return np.asarray((1 - (1 - share) ** cells).mean(axis=1), np.float64)
    assert_never(definition)


def published_later(curve: Curve, period_h: float) -> Curve:
    """The same curve for someone who hears of samples only every `period_h` hours.

    With the time of a full histogram (H S launches of a busy GPU) it says when full histograms alone have
    told the coverage; with the length of a batch, when partial histograms are sent at its end.
    """
    if period_h <= 0:
        raise ConfigError(f"period_h = {period_h} is not positive.", remedy="Give hours above 0.")
    heard = np.floor(curve.hours / period_h + 1e-9) * period_h
    lost = np.log1p(-np.minimum(curve.coverage, 1 - 1e-15))
    return Curve(curve.hours, -np.expm1(np.interp(heard, curve.hours, lost)), curve.by_app)
