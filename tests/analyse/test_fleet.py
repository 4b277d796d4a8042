from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.fleet import bins_of, classes_by_size, fleet_shares
from penrose_ray.analyse.frames import open_release
from penrose_ray.analyse.joint import quadrants

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.histogram import CounterSet


def at(bin_: int, count: int) -> np.ndarray:
    return np.bincount([bin_], weights=[count], minlength=128).astype(np.int64)


def test_shares_of_launches_and_time(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    joint: CounterSet,
) -> None:
    # bins 19 and 37 of 126 over 7 decades from 100: their centres are 10.0 times apart
    sums = [
        opened(duration, at(19, 300), name=1),
        opened(duration, at(37, 100), name=2),
        opened(joint, at(5, 9_000), name=2),
    ]
    frame = open_release(write_release(make_task(duration, joint), sums))
    shares = fleet_shares(frame).set_index("label")
    assert shares.index.tolist() == ["01010101", "02020202"]
    assert shares["launch_share"].tolist() == [0.75, 0.25]
    assert shares["time_share"].tolist() == pytest.approx([3 / 13, 10 / 13])
    assert classes_by_size(frame) == ["02020202", "01010101"]
    assert bins_of(frame[frame["counter_set"] == "duration"])[[19, 37]].tolist() == [300, 100]


def test_what_was_dropped_under_load_counts_in_the_fleet(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    joint: CounterSet,
) -> None:
    """Of the first class one report in four was kept: its 300 samples stand for 1,200."""
    kept = {1: 0.25, 2: 1.0}
    sums = [
        dataclasses.replace(opened(one, at(bin_, count), name=name), keep_share=kept[name])
        for one, name, bin_, count in (
            (duration, 1, 19, 300),
            (duration, 2, 37, 400),
            (joint, 1, 0, 300),
            (joint, 2, 127, 400),
        )
    ]
    frame = open_release(write_release(make_task(duration, joint, sampling_interval=10), sums))
    rows = frame[frame["bin"] == 19].set_index(["counter_set", "label"]).loc["duration"]
    assert rows[["keep_share", "estimated_samples", "launches"]].to_numpy().tolist() == [
        [0.25, 1_200, 12_000],
        [1.0, 400, 4_000],
    ]
    shares = fleet_shares(frame).set_index("label")
    assert shares["launch_share"].tolist() == [0.75, 0.25]
    assert shares["time_share"].tolist() == pytest.approx([3 / 13, 10 / 13])
    everything = quadrants(frame).query("label == 'all'").set_index("quadrant")
    idle = everything.loc["idle"]
    assert idle["share"] == pytest.approx(0.75, abs=0.002)
    assert idle["samples"] == pytest.approx((1_200 + 400) ** 2 / (16 * 300 + 400), abs=1)


def test_without_durations_there_is_no_share_of_time(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    joint: CounterSet,
) -> None:
    shares = fleet_shares(open_release(write_release(make_task(joint), [opened(joint, at(5, 10))])))
    assert shares["launch_share"].tolist() == [1.0]
    assert shares["time_share"].isna().all()


def test_an_empty_release_has_no_shares(
    make_task: Callable[..., Any], write_release: Callable[..., Path]
) -> None:
    assert fleet_shares(open_release(write_release(make_task(), []))).empty
