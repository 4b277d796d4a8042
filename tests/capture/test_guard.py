from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.capture.guard import BusyThinner, OverheadGuard, busy_share
from penrose_ray.clock import ManualClock
from penrose_ray.errors import ConfigError


def _run(guard: OverheadGuard, clock: ManualClock, windows: int, cost_s: float) -> list[bool]:
    """Windows of 10 s that cost `cost_s` of CPU when capture is on."""
    seen = []
    for _ in range(windows):
        on = guard.decide().on
        seen.append(on)
        if on:
            guard.spend(round(cost_s * 1e9))
        clock.advance(10)
    return seen


def test_cheap_capture_is_always_on() -> None:
    clock = ManualClock()
    guard = OverheadGuard(budget_percent=3, clock=clock)
    assert all(_run(guard, clock, 100, cost_s=0.29))
    duty = guard.decide()
    assert (duty.duty_percent, duty.overhead_percent) == (100, pytest.approx(2.9))


@pytest.mark.parametrize(("cost_s", "duty"), [(0.6, 1 / 2), (3.0, 1 / 10), (1.0, 0.3)])
def test_dear_capture_is_on_as_often_as_the_budget_pays_for(cost_s: float, duty: float) -> None:
    clock = ManualClock()
    guard = OverheadGuard(budget_percent=3, clock=clock)
    seen = _run(guard, clock, 1000, cost_s)
    assert np.mean(seen) == pytest.approx(duty, abs=0.01)
    assert sum(seen) * cost_s / 10_000 <= 0.03 * 1.01


def test_decision_holds_within_a_window() -> None:
    clock = ManualClock()
    guard = OverheadGuard(budget_percent=3, clock=clock)
    guard.spend(10**10)
    clock.advance(9.9)
    assert guard.decide().on
    clock.advance(0.1)
    assert not guard.decide().on


def test_reason_shows_the_measured_cost_beside_the_published_one() -> None:
    clock = ManualClock()
    guard = OverheadGuard(budget_percent=3, clock=clock)
    _run(guard, clock, 10, cost_s=0.1)
    assert guard.decide().reason == (
        "1.000 % of a core while on, budget 3 %, on 100 % of the time; published slow-down 0.045 %"
    )


def test_budget_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        OverheadGuard(budget_percent=0, clock=ManualClock())


@pytest.mark.parametrize(
    ("utilisation", "share"),
    [(0.0, 1.0), (0.8, 1.0), (0.9, 0.55), (1.0, 0.1), (1.7, 0.1), (float("nan"), 1.0)],
)
def test_share_of_fine_events_falls_above_80_percent(utilisation: float, share: float) -> None:
    assert BusyThinner(np.random.default_rng(0)).share(utilisation) == pytest.approx(share)


@pytest.mark.parametrize(
    ("start", "end", "share"),
    [
        ([0, 10], [5, 20], 0.75),
        ([0, 2, 4], [10, 3, 20], 1.0),
        ([30, 0], [40, 10], 0.5),
        ([0, 5], [0, 10], 1.0),
        ([0], [0], float("nan")),
        ([], [], float("nan")),
    ],
)
def test_busy_share_is_that_of_time_with_a_kernel(start: list[int], end: list[int], share: float) -> None:
    found = busy_share(np.array(start, dtype=np.int64), np.array(end, dtype=np.int64))
    assert found == pytest.approx(share, nan_ok=True)


def test_thinning_keeps_every_launch_and_the_sum_of_fine_events() -> None:
    rows = 200_000
    fine = np.arange(rows) % 2 == 0
    kept, weight = BusyThinner(np.random.default_rng(1)).thin(fine, np.ones(rows), 0.9)
    assert kept[~fine].all()
    assert (weight[~fine] == 1).all()
    total = weight[kept & fine].sum()
    deviation = np.sqrt(rows / 2 * (1 - 0.55) / 0.55)
    assert abs(total - rows / 2) < 4 * deviation
