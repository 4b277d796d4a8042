from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.aggregate.balance import SPAN_S, Decision, Sample, Window, decide


def steady(window: Window, busy: float, waiting: int, *, until_s: float = SPAN_S) -> Window:
    """A sample every 10 seconds from 0 on."""
    for at_s in range(0, int(until_s) + 1, 10):
        window = window.add(Sample(float(at_s), busy, waiting))
    return window


@pytest.mark.parametrize(
    ("busy", "waiting", "pending", "delta"),
    [
        (0.91, 14, 0, 2),
        (0.91, 0, 0, 0),
        (0.85, 14, 0, 0),
        (0.5, 14, 0, 0),
        (0.15, 0, 0, 0),
        (0.14, 0, 0, -1),
        (0.14, 5, 0, -1),
        (0.14, 0, 1, 0),
        (0.91, 14, 1, 2),
    ],
)
def test_the_rule(busy: float, waiting: int, pending: int, delta: int) -> None:
    window = steady(Window(shards=4, pending=pending), busy, waiting)
    assert decide(window, SPAN_S).delta == delta


def test_a_decision_gives_its_reason() -> None:
    decision = decide(steady(Window(shards=2), 0.91, 14), SPAN_S)
    assert decision == Decision(2, "busy 0.91 over 300 s, 14 waiting")


def test_the_mean_is_over_time_not_over_samples() -> None:
    # idle for 200 s in one sample, then ten samples of 10 s fully busy: 100 / 300 busy
    window = Window(shards=2).add(Sample(0.0, 0.0, 1)).add(Sample(200.0, 0.0, 1))
    for at_s in range(210, 310, 10):
        window = window.add(Sample(float(at_s), 1.0, 1))
    assert decide(window, SPAN_S).reason.startswith("busy 0.33")


def test_bounds_are_kept() -> None:
    assert decide(steady(Window(shards=7, most=8), 1.0, 9), SPAN_S).delta == 1
    assert decide(steady(Window(shards=8, most=8), 1.0, 9), SPAN_S).delta == 0
    assert decide(steady(Window(shards=2, least=2), 0.0, 0), SPAN_S).delta == 0
    assert decide(Window(shards=1, least=3), 0.0).delta == 2
    assert decide(Window(shards=9, most=8), 0.0).delta == -1


def test_a_full_window_is_waited_at_the_start_and_after_each_change() -> None:
    window = steady(Window(shards=4), 1.0, 9, until_s=290)
    assert decide(window, 290.0).delta == 0
    changed = replace(steady(Window(shards=4), 1.0, 9, until_s=600), changed_s=400.0)
    assert decide(changed, 600.0).reason == "changed 200 s ago, 300 s are waited"
    assert decide(changed, 700.0).delta == 2


def test_a_clock_set_back_starts_the_window_anew() -> None:
    window = steady(Window(shards=4, changed_s=200.0), 1.0, 9, until_s=600).add(Sample(100.0, 1.0, 9))
    assert window.samples == (Sample(100.0, 1.0, 9),)
    assert decide(window, 100.0).delta == 0
    assert decide(steady(Window(shards=4, changed_s=100.0), 1.0, 9, until_s=600), 600.0).delta == 2


@given(
    shards=st.integers(1, 20),
    work=st.lists(st.floats(0, 40), min_size=1, max_size=6),
    start_delay_s=st.integers(0, 100),
)
def test_constant_work_is_met_without_flapping(shards: int, work: list[float], start_delay_s: int) -> None:
    """Work in shards' worth of time; after each change of it the number of shards settles, going one way."""
    window, now_s, starting = Window(shards=shards, most=50), 0.0, list[tuple[float, int]]()
    for demand in work:
        deltas = []
        for _ in range(900):
            now_s += 10
            ready = sum(count for at_s, count in starting if at_s <= now_s)
            starting = [(at_s, count) for at_s, count in starting if at_s > now_s]
            window = replace(
                window, shards=window.shards + ready, pending=sum(count for _, count in starting)
            )
            busy = min(1.0, demand / window.shards)
            window = window.add(Sample(now_s, busy, 1 if demand > window.shards * 0.8 else 0))
            delta = decide(window, now_s).delta
            if delta > 0:
                starting.append((now_s + start_delay_s, delta))
            elif delta < 0:
                assert not window.pending
                window = replace(window, shards=window.shards + delta)
            if delta:
                window = replace(window, changed_s=now_s)
                deltas.append(delta)
            assert window.least <= window.shards <= window.most
        assert not (any(delta > 0 for delta in deltas[1:]) and any(delta < 0 for delta in deltas[1:]))
        assert decide(window, now_s).delta == 0


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1), st.integers(0, 9)), max_size=30), st.floats(0, 2e4)
)
def test_any_window_gives_a_decision_within_bounds(
    samples: list[tuple[float, float, int]], now_s: float
) -> None:
    window = Window(shards=3, least=2, most=4)
    for at_s, busy, waiting in sorted(samples):
        window = window.add(Sample(at_s, busy, waiting))
    decision = decide(window, now_s)
    assert 2 <= window.shards + decision.delta <= 4
    assert decision.reason
