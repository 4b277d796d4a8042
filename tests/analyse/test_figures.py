from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from penrose_ray.analyse.figures import distribution, fleet_share, joint_use
from penrose_ray.analyse.frames import open_release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd
    from matplotlib.figure import Figure

    from penrose_ray.histogram import CounterSet


@pytest.fixture(scope="module")
def frame(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    joint: CounterSet,
) -> pd.DataFrame:
    random = np.random.default_rng(5)
    sums = [
        opened(each, random.binomial(40 * name, 0.5, 128).astype(np.int64), name=name)
        for name in (1, 2, 3)
        for each in (duration, joint)
    ]
    return open_release(write_release(make_task(duration, joint), sums))


def texts(figure: Figure) -> str:
    axes = figure.axes[0]
    ticks = [each.get_text() for each in (*axes.get_yticklabels(), *axes.get_xticklabels())]
    return "\n".join([axes.get_title(loc="left"), *ticks, *(each.get_text() for each in axes.texts)])


def test_distribution_names_each_class_and_its_median(frame: pd.DataFrame) -> None:
    figure = distribution(frame, "duration")
    shown = texts(figure)
    assert "Duration (opencl)" in shown
    for label in ("01010101", "02020202", "03030303"):
        assert label in shown
    assert figure.axes[0].get_xscale() == "log"
    assert "median" in shown


def test_distribution_keeps_to_the_largest_classes(frame: pd.DataFrame) -> None:
    shown = texts(distribution(frame, "duration", most_classes=1))
    assert "03030303" in shown
    assert "01010101" not in shown


def test_either_axis_of_a_joint_set(frame: pd.DataFrame) -> None:
    assert "DRAM active" in texts(distribution(frame, "dram_tensor", 0))
    assert "Tensor active" in texts(distribution(frame, "dram_tensor", 1))


def test_joint_use_has_a_cell_for_each_filled_bin_and_four_quadrants(frame: pd.DataFrame) -> None:
    figure = joint_use(frame)
    cells = [each for each in figure.axes[0].patches if isinstance(each, Rectangle)]
    assert len(cells) == 128
    for name in ("both", "tensor only", "DRAM only", "idle"):
        assert name in texts(figure)


def test_fleet_share_says_launches_and_time(frame: pd.DataFrame) -> None:
    shown = texts(fleet_share(frame))
    assert "% of launches" in shown
    assert "% of GPU time" in shown


def test_a_plot_of_nothing_says_so(
    make_task: Callable[..., Any], write_release: Callable[..., Path], frame: pd.DataFrame
) -> None:
    empty = open_release(write_release(make_task(), []))
    assert "holds no sample" in texts(fleet_share(empty))
    assert "no joint counter set" in texts(joint_use(empty))
    assert "No class has samples of duration" in texts(distribution(frame.iloc[:0], "duration"))


def test_figures_leave_no_global_state(frame: pd.DataFrame) -> None:
    before = dict(mpl.rcParams)
    distribution(frame, "duration")
    assert dict(mpl.rcParams) == before
