from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.fleet import bins_of, classes_by_size, fleet_shares
from penrose_ray.analyse.frames import open_release

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
