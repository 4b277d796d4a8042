from __future__ import annotations

import pytest

from penrose_ray.actors.scaler import Load, Scaler
from penrose_ray.clock import ManualClock


class TwoSidedPool:
    """Shards that are as busy as the test says; new ones work after `start_ticks`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.busy: dict[str, float] = {"shard-0": 0.0, "shard-1": 0.0}
        self.share = 0.0
        self.waiting = 0
        self.asked = 0
        self.drained: list[str] = []

    def advance(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self.busy = {name: busy + self.share * seconds for name, busy in self.busy.items()}

    def start_asked(self) -> None:
        for _ in range(self.asked):
            self.busy[f"shard-{len(self.busy)}"] = 0.0
        self.asked = 0

    def load(self) -> Load:
        return Load(dict(self.busy), self.waiting)

    def pending(self) -> int:
        return self.asked

    def grow(self, shards: int) -> None:
        self.asked += shards

    def shrink(self) -> None:
        name = max(self.busy)
        del self.busy[name]
        self.drained.append(name)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def pool(clock: ManualClock) -> TwoSidedPool:
    return TwoSidedPool(clock)


def run(scaler: Scaler, pool: TwoSidedPool, seconds: int) -> list[int]:
    deltas = []
    for _ in range(seconds // 5):
        pool.advance(5)
        deltas.append(scaler.tick().delta)
    return [delta for delta in deltas if delta]


def test_five_busy_minutes_with_work_waiting_add_two_shards(pool: TwoSidedPool, clock: ManualClock) -> None:
    scaler = Scaler(pool, clock, least=1, most=8)
    pool.share, pool.waiting = 0.95, 40
    scaler.tick()
    assert run(scaler, pool, 290) == []
    assert run(scaler, pool, 15) == [2]
    assert pool.asked == 2
    pool.start_asked()
    assert run(scaler, pool, 290) == [], "a full window after each change"
    assert "busy 0.95" in scaler.made[0].decision.reason


def test_without_work_waiting_nothing_is_added(pool: TwoSidedPool, clock: ManualClock) -> None:
    scaler = Scaler(pool, clock, least=1, most=8)
    pool.share = 1.0
    scaler.tick()
    assert run(scaler, pool, 900) == []


def test_quiet_shards_go_one_by_one_down_to_the_least(pool: TwoSidedPool, clock: ManualClock) -> None:
    scaler = Scaler(pool, clock, least=1, most=8)
    pool.busy["shard-2"] = 0.0
    scaler.tick()
    assert run(scaler, pool, 2000) == [-1, -1]
    assert pool.drained == ["shard-2", "shard-1"]


def test_a_restarted_shard_s_counter_does_not_go_negative(pool: TwoSidedPool, clock: ManualClock) -> None:
    scaler = Scaler(pool, clock, least=2, most=8)
    pool.share, pool.waiting = 0.9, 1
    scaler.tick()
    decisions = []
    for tick in range(62):
        pool.advance(5)
        if tick == 30:
            pool.busy["shard-1"] = 1.0  # it came back 1 s of work ago
        decisions.append(scaler.tick())
    (grown,) = [each for each in decisions if each.delta]
    assert grown.delta == 2
    assert "busy 0.8" in grown.reason
