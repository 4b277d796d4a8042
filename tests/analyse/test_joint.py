from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.frames import open_release
from penrose_ray.analyse.joint import joint_sets, quadrants
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import CounterSet, count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd


@pytest.fixture(scope="module")
def frame(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    joint: CounterSet,
    duration: CounterSet,
) -> pd.DataFrame:
    # (DRAM %, tensor %): 38 tensor only, 10 DRAM only, 32 both, 20 idle
    points = [(10, 90)] * 38 + [(90, 10)] * 10 + [(80, 70)] * 32 + [(5, 0)] * 20
    first = opened(joint, count(joint, np.array(points, float)), name=1)
    second = opened(joint, count(joint, np.array([(90.0, 90.0)] * 100)), name=2)
    third = opened(duration, np.arange(128), name=2)
    return open_release(write_release(make_task(joint, duration), [first, second, third]))


def test_shares_of_the_quadrants(frame: pd.DataFrame) -> None:
    table = quadrants(frame)
    first = table[table["label"] == "01010101"].set_index("quadrant")
    assert first["share"].to_dict() == {"both": 0.32, "tensor only": 0.38, "DRAM only": 0.10, "idle": 0.20}
    assert first["share_low"]["tensor only"] < 0.38 < first["share_high"]["tensor only"]
    everything = table[table["label"] == "all"].set_index("quadrant")
    assert everything["share"].to_dict() == {
        "both": 0.66,
        "tensor only": 0.19,
        "DRAM only": 0.05,
        "idle": 0.10,
    }


def test_thresholds_lie_on_the_nearest_edge(frame: pd.DataFrame) -> None:
    table = quadrants(frame, dram_active=9.0, tensor_active=95.0)
    # edges: multiples of 100/14 for DRAM, of 100/6 for tensor use
    assert table["dram_active"].iloc[0] == pytest.approx(100 / 14)
    assert table["tensor_active"].iloc[0] == 100
    first = table[table["label"] == "01010101"].set_index("quadrant")["share"]
    assert first["DRAM only"] == 0.8
    assert first["idle"] == 0.2


def test_order_of_the_axes_does_not_matter(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    joint: CounterSet,
) -> None:
    turned = CounterSet("turned", joint.counters[::-1], joint.axes[::-1])
    counts = count(turned, np.array([(90.0, 10.0)] * 3 + [(10.0, 90.0)]))
    frame = open_release(write_release(make_task(turned), [opened(turned, counts)]))
    shares = quadrants(frame).set_index(["label", "quadrant"])["share"]
    assert shares["all", "tensor only"] == 0.75
    assert shares["all", "DRAM only"] == 0.25


def test_sets_that_are_not_joint_are_refused(frame: pd.DataFrame) -> None:
    assert joint_sets(frame) == ["dram_tensor"]
    with pytest.raises(ConfigError, match="'duration' is not a joint set"):
        quadrants(frame, "duration")
