from __future__ import annotations

import math

import pytest

from penrose_ray.analyse.wording import NOTHING, interval, percent, plain_name, quantity, unit_apart, whole


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (12_345.0, "ns", "12.3 µs"),
        (999.0, "ns", "999 ns"),
        (1_000.0, "ns", "1 µs"),
        (2.5e9, "ns", "2.5 s"),
        (38.04, "%", "38 %"),
        (0.0, "%", "0 %"),
        (1_250_000.0, "work-items/us", "1.25 M work-items/µs"),
        (123_456.0, "1", "123 k"),
        (0.00012, "1", "0.00012"),
        (math.nan, "ns", NOTHING),
    ],
)
def test_quantity(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_counts_stay_whole_until_they_are_long() -> None:
    assert [whole(each) for each in (0, 99_999, 1_234_567)] == ["0", "99,999", "1.23 M"]


def test_percent_never_rounds_something_to_nothing() -> None:
    assert [percent(each) for each in (0.0, 0.0001, 0.38, 1.0)] == ["0.0 %", "< 0.1 %", "38.0 %", "100.0 %"]


def test_counter_names_as_titles() -> None:
    assert [plain_name(each) for each in ("queue_delay", "dram_active")] == ["Queue delay", "DRAM active"]


def test_long_units_are_said_once() -> None:
    assert unit_apart("work-items/us") == (" [work-items/µs]", "1")
    assert unit_apart("ns") == ("", "ns")


def test_intervals_show_that_they_have_a_width() -> None:
    assert interval(0.372, 0.388) == "37.2 to 38.8 %"
    assert interval(0.1517, 0.1524) == "15.17 to 15.24 %"
