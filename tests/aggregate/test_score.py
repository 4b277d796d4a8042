from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.aggregate.score import Score, Tier, fresh


@pytest.mark.parametrize(
    ("hours", "tier"), [(0, Tier.HOT), (4, Tier.HOT), (5, Tier.WARM), (6, Tier.WARM), (23, Tier.WARM)]
)
def test_a_sum_left_alone_cools(hours: int, tier: Tier) -> None:
    # after its first hour, in which it was made: 0.95 ** (hours - 1) + 0.05 of that hour's use
    assert Score(1.0, 0).tier(hours) is tier


def test_the_limits_are_those_of_the_published_rule() -> None:
    # 0.95 ** 4 = 0.8145, 0.95 ** 5 = 0.7738, 0.95 ** 23 = 0.3074, 0.95 ** 24 = 0.2920
    left_alone = Score(1.0, 0)
    assert [left_alone.tier(hour) for hour in (4, 5, 23, 24)] == [Tier.HOT, Tier.WARM, Tier.WARM, Tier.COLD]


def test_use_every_hour_keeps_a_sum_hot_for_ever() -> None:
    score = fresh(0)
    for hour in range(1, 1000):
        score = score.touched(hour)
    assert score.tier(1000) is Tier.HOT


@given(st.lists(st.integers(0, 30), max_size=30))
def test_hours_may_be_skipped_or_gone_through_one_by_one(gaps: list[int]) -> None:
    lazy, value, hour, used = fresh(0), 1.0, 0, True
    for gap in gaps:
        for _ in range(gap):
            value, used, hour = 0.95 * value + 0.05 * used, False, hour + 1
        used = True
        lazy = lazy.touched(hour)
    assert math.isclose(lazy.value, value)
    assert lazy.hour == hour


def test_a_clock_set_back_changes_nothing() -> None:
    score = Score(0.5, 100)
    assert score.at(90) == score
    assert score.touched(90) == Score(0.5, 100, used=True)
