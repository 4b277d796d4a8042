from __future__ import annotations

from penrose_ray.capture.armed import NEVER, ArmedLaunches
from penrose_ray.histogram import Counter

A, B = Counter("a", "", "t", "v"), Counter("b", "", "t", "v")


def test_armed_launches_are_taken_in_order_with_their_columns() -> None:
    armed = ArmedLaunches((A, B))
    assert armed.add([9, 3], [B], first=0) == 0
    assert armed.add([3], [A], first=0) == 0
    assert armed.next == 3
    assert armed.take(9) == [(3, (0,)), (3, (1,))]
    assert armed.next == 9
    armed.clear()
    assert armed.next == NEVER


def test_past_launches_are_counted_and_unknown_counters_ignored() -> None:
    armed = ArmedLaunches((A,))
    assert armed.add([1, 2, 5], [A], first=3) == 2
    assert armed.add([7], [B], first=0) == 0
    assert armed.take(100) == [(5, (0,))]
