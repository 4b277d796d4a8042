"""Keeping capture cheap: whole windows off when it costs too much, fewer fine events on a busy GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.clock import Clock

PUBLISHED_SLOWDOWN_PERCENT = 0.045
"""Mean over 154 applications in the publication whose sampling this client follows; for comparison only."""
BUSY_SHARE = 0.8
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Duty:
    """What the guard decided for a window, and why."""

    on: bool
    overhead_percent: float
    """Of one core, over the windows in which capture was on."""
    duty_percent: float
    """Share of windows in which capture was on."""
    reason: str


class OverheadGuard:
    """Switches capture off for whole windows, so that its mean cost stays within the owner's budget.

    Only whole windows: a gap costs one snippet, and inside a window the sampling interval never changes.

    Args:
        budget_percent: of one core, `max_overhead_percent` of the owner's policy.
        window_s: length of a window.
        clock: monotonic time.
    """

    def __init__(self, *, budget_percent: float, clock: Clock, window_s: float = 10.0) -> None:
        if budget_percent <= 0:
            raise ConfigError(
                f"Overhead budget {budget_percent} %: it is above 0.", remedy="Correct policy.toml."
            )
        self._budget = budget_percent
        self._window_ns = round(window_s * _NS_PER_S)
        self._clock = clock
        self._start_ns = clock.monotonic_ns()
        self._spent_ns = 0
        self._debt_ns = 0.0
        """CPU time beyond the budget, worked off by windows that are off; at most one window is saved up."""
        self._on = True
        self._windows = self._windows_on = 0
        self._measured_ns = self._cost_ns = 0

    def spend(self, cpu_ns: int) -> None:
        """Account CPU time that capture and encryption took."""
        self._spent_ns += cpu_ns

    def decide(self) -> Duty:
        """Close a window that is over; whether capture is on now."""
        now = self._clock.monotonic_ns()
        elapsed = now - self._start_ns
        if elapsed >= self._window_ns:
            self._close(elapsed)
            self._start_ns = now
        overhead = 100 * self._cost_ns / self._measured_ns if self._measured_ns else 0.0
        duty = 100 * self._windows_on / self._windows if self._windows else 100.0
        reason = (
            f"{overhead:.3f} % of a core while on, budget {self._budget:g} %, on {duty:.0f} % of the time; "
            f"published slow-down {PUBLISHED_SLOWDOWN_PERCENT} %"
        )
        return Duty(self._on, overhead, duty, reason)

    def _close(self, elapsed: int) -> None:
        self._windows += 1
        self._windows_on += self._on
        if self._on:
            self._measured_ns += elapsed
            self._cost_ns += self._spent_ns
        allowed = self._budget / 100 * elapsed
        self._debt_ns = max(-allowed, self._debt_ns + self._spent_ns - allowed)
        self._spent_ns = 0
        self._on = self._debt_ns <= 0


def busy_share(start_ns: NDArray[np.int64], end_ns: NDArray[np.int64]) -> float:
    """Share of the time from the first start to the last end in which at least one kernel ran.

    Kernels without times are left out; NaN where none is left.
    """
    known = end_ns > 0
    if not known.any():
        return float("nan")
    order = np.argsort(start_ns[known], kind="stable")
    start, end = start_ns[known][order], end_ns[known][order]
    reached = np.maximum.accumulate(end)
    idle = np.maximum(start[1:] - reached[:-1], 0).sum()
    span = reached[-1] - start[0]
    return float(1 - idle / span) if span else float("nan")


class BusyThinner:
    """Keeps every launch, but of fine events (copies, fills, syncs, operators) only some on a busy GPU.

    Up to 80 % utilisation all are kept; above, a share that falls linearly to `least` at 100 %. Kept events
    carry the inverse as weight, so sums stay unbiased.
    """

    def __init__(self, rng: np.random.Generator, *, least: float = 0.1) -> None:
        if not 0 < least <= 1:
            raise ConfigError(
                f"Least share {least}: it is above 0, up to 1.", remedy="Correct the client's settings."
            )
        self._rng = rng
        self._least = least

    def share(self, utilisation: float) -> float:
        """Share of fine events that is kept at a utilisation of 0 to 1; all where it is unknown (NaN)."""
        if not utilisation > BUSY_SHARE:
            return 1.0
        over = (min(utilisation, 1.0) - BUSY_SHARE) / (1 - BUSY_SHARE)
        return 1 - over * (1 - self._least)

    def thin(
        self, fine: NDArray[np.bool_], weight: NDArray[np.float64], utilisation: float
    ) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Which rows are kept, and the weights of all rows."""
        share = self.share(utilisation)
        if share >= 1:
            return np.ones(len(fine), dtype=np.bool_), weight
        kept = ~fine | (self._rng.random(len(fine)) < share)
        return kept, np.where(fine, weight / share, weight)
