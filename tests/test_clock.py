from __future__ import annotations

import time

import pytest

from penrose_ray.clock import ManualClock, SystemClock


def test_both_readings_of_a_manual_clock_move_together() -> None:
    clock = ManualClock(start_s=100.0)
    before_ns = clock.monotonic_ns()

    clock.advance(2.5)

    assert clock.now_s() == 102.5
    assert clock.monotonic_ns() - before_ns == 2_500_000_000


def test_a_manual_clock_stands_still_by_itself_and_never_goes_back() -> None:
    clock = ManualClock()

    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-0.001)
    assert clock.now_s() == 1_750_000_000.0


def test_the_system_clock_reads_the_machine() -> None:
    clock = SystemClock()

    before_s, before_ns = time.time(), time.monotonic_ns()
    now_s, now_ns = clock.now_s(), clock.monotonic_ns()

    assert before_s <= now_s <= time.time()
    assert before_ns <= now_ns <= time.monotonic_ns()


def test_a_wall_clock_that_is_set_leaves_the_monotonic_one_alone() -> None:
    clock = ManualClock(100.0)
    clock.jump(-50)
    assert (clock.now_s(), clock.monotonic_ns()) == (50.0, 100_000_000_000)
    clock.advance(1)
    assert (clock.now_s(), clock.monotonic_ns()) == (51.0, 101_000_000_000)
