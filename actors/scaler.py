"""The scaler: watches the shards' load, asks the pure policy, adds shards or drains one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from penrose_ray.aggregate.balance import Decision, Sample, Window, decide
from penrose_ray.telemetry import SCALED, SHARDS

if TYPE_CHECKING:
    from penrose_ray.clock import Clock

_REMEMBERED = 20


@dataclass(frozen=True, slots=True)
class Load:
    """What the shards have done since they started, and what waits for them."""

    busy_s: dict[str, float]
    """Seconds that each working shard was busy."""
    waiting: int


class Pool(Protocol):
    """The shards as the scaler moves them."""

    def load(self) -> Load:
        """Load of the shards that work."""
        ...

    def pending(self) -> int:
        """Shards that were asked for and do not work yet."""
        ...

    def grow(self, shards: int) -> None:
        """Ask for more shards; returns at once."""
        ...

    def shrink(self) -> None:
        """Drain one shard and end it."""
        ...


@dataclass(frozen=True, slots=True)
class Made:
    """A decision and when it was made."""

    at_s: float
    decision: Decision


class Scaler:
    """Call `tick` every few seconds; one decision at a time."""

    def __init__(self, pool: Pool, clock: Clock, *, least: int, most: int) -> None:
        self._pool = pool
        self._clock = clock
        self._window = Window(shards=0, least=least, most=most)
        self._busy_s: dict[str, float] = {}
        self._at_s: float | None = None
        self.made: deque[Made] = deque(maxlen=_REMEMBERED)
        """The last decisions that changed something."""

    def tick(self) -> Decision:
        """Look, decide, act."""
        now_s = self._clock.monotonic_ns() / 1e9
        load = self._pool.load()
        window = replace(self._window, shards=len(load.busy_s), pending=self._pool.pending())
        if self._at_s is not None and now_s > self._at_s:
            window = window.add(Sample(now_s, self._share(load, now_s - self._at_s), load.waiting))
        self._busy_s, self._at_s = load.busy_s, now_s
        decision = decide(window, now_s)
        if decision.delta:
            window = replace(window, changed_s=now_s)
            self.made.append(Made(self._clock.now_s(), decision))
        self._window = window
        SHARDS.set(window.shards, state="working")
        SHARDS.set(window.pending, state="pending")
        if decision.delta:
            SCALED.add(abs(decision.delta), direction="up" if decision.delta > 0 else "down")
        if decision.delta > 0:
            self._pool.grow(decision.delta)
        elif decision.delta < 0:
            self._pool.shrink()
        return decision

    def _share(self, load: Load, seconds: float) -> float:
        """Mean busy share since the last tick; a shard that restarted counts from its new start."""
        if not load.busy_s:
            return 0.0
        worked = 0.0
        for name, busy_s in load.busy_s.items():
            before_s = self._busy_s.get(name, busy_s)
            worked += busy_s - before_s if busy_s >= before_s else busy_s
        return min(1.0, worked / (seconds * len(load.busy_s)))
