"""The autoscaler's rule under a day of load, without a cluster: the same `decide` that runs in production."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.aggregate.balance import Sample, Window, decide
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Day:
    """A day's load of the aggregation service."""

    mean_per_s: float = 50_000.0
    """Reports a second, mean over the day."""
    swing: float = 0.6
    """Amplitude of the daily wave, relative to the mean."""
    bursts: tuple[tuple[float, float, float], ...] = ((9.0, 0.5, 3.0), (20.0, 0.25, 4.0))
    """(hour, length in hours, factor): clients that come back together."""
    outages: tuple[tuple[float, float], ...] = ((14.0, 0.5),)
    """(hour, length in hours) in which no shard works; what is sent waits at the clients."""
    shard_per_s: float = 25_000.0
    """Reports a second that one shard takes."""
    start_s: float = 60.0
    """Seconds from a decision to a working shard."""
    step_s: float = 10.0
    least: int = 1
    most: int = 64


def arrivals(day: Day) -> NDArray[np.float64]:
    """Reports a second at each step of the day."""
    if day.mean_per_s < 0 or day.shard_per_s <= 0 or day.step_s <= 0:
        raise ConfigError("mean_per_s, shard_per_s or step_s is not positive.", remedy="Give more than 0.")
    hour = np.arange(0, 24, day.step_s / 3600)
    rate = day.mean_per_s * (1 + day.swing * np.sin((hour - 9) / 24 * 2 * np.pi))
    for start, length, factor in day.bursts:
        rate[(hour >= start) & (hour < start + length)] *= factor
    return np.maximum(rate, 0)


def simulate_day(day: Day) -> pd.DataFrame:
    """What the rule does, step after step.

    Returns:
        hour, arriving_per_s, shards, busy, waiting, delta, reason.
    """
    state = _Service(day)
    rows = []
    for step, rate in enumerate(arrivals(day)):
        now_s = step * day.step_s
        down = any(start <= now_s / 3600 < start + length for start, length in day.outages)
        busy = state.work(rate, down=down)
        delta, reason = state.judge(now_s, busy)
        rows.append(
            {
                "hour": now_s / 3600,
                "arriving_per_s": float(rate),
                "shards": state.window.shards,
                "busy": busy,
                "waiting": state.waiting,
                "delta": delta,
                "reason": reason,
            }
        )
    return pd.DataFrame(rows)


class _Service:
    def __init__(self, day: Day) -> None:
        self._day = day
        self.window = Window(shards=day.least, least=day.least, most=day.most)
        self.waiting = 0.0
        self._starting: list[float] = []

    def work(self, rate: float, *, down: bool) -> float:
        """One step of all shards; returns the share of it that they worked."""
        self.waiting += rate * self._day.step_s
        room = 0.0 if down else self.window.shards * self._day.shard_per_s * self._day.step_s
        done = min(self.waiting, room)
        self.waiting -= done
        if down:
            return 1.0  # a shard that hangs looks busy
        return done / room if room else 1.0

    def judge(self, now_s: float, busy: float) -> tuple[int, str]:
        """Let shards that were asked for start, then decide."""
        ready = sum(at_s <= now_s for at_s in self._starting)
        self._starting = [at_s for at_s in self._starting if at_s > now_s]
        self.window = replace(
            self.window, shards=self.window.shards + ready, pending=len(self._starting)
        ).add(Sample(now_s, busy, int(self.waiting)))
        decision = decide(self.window, now_s)
        if decision.delta:
            self.window = replace(self.window, changed_s=now_s)
        if decision.delta > 0:
            self._starting += [now_s + self._day.start_s] * decision.delta
        elif decision.delta < 0:
            self.window = replace(self.window, shards=self.window.shards + decision.delta)
        self.window = replace(self.window, pending=len(self._starting))
        return decision.delta, decision.reason
