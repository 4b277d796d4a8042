from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from penrose_ray.analyse.charts import idle_map, interval_bars, quadrant_bars, trend_lines
from penrose_ray.analyse.idle import idle_by_hour
from penrose_ray.analyse.joint import QUADRANTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def texts(figure: Figure) -> list[str]:
    axes = figure.axes[0]
    return [axes.get_title(loc="left"), *(each.get_text() for each in (*axes.get_yticklabels(), *axes.texts))]


def test_bars_with_their_intervals() -> None:
    table = pd.DataFrame(
        {"label": ["a", "b"], "share": [0.38, np.nan], "low": [0.3, 0.1], "high": [0.45, 0.2]}
    )
    figure = interval_bars(table, value="share", low="low", high="high", title="Tensor only")
    assert texts(figure) == ["Tensor only", "a", "b", "38.0 %", ""]
    (lines,) = figure.axes[0].collections
    assert [segment[:, 0].tolist() for segment in lines.get_segments()] == [[0.3, 0.45], [0.1, 0.2]]


def test_quadrants_fill_a_bar() -> None:
    table = pd.DataFrame({"label": "a", "quadrant": QUADRANTS, "share": [0.32, 0.38, 0.1, 0.2]})
    bars = [each for each in quadrant_bars(table).axes[0].patches if isinstance(each, Rectangle)]
    assert [round(each.get_width(), 2) for each in bars] == [0.32, 0.38, 0.1, 0.2]
    assert bars[-1].get_x() + bars[-1].get_width() == 1.0


def test_idle_hours_are_written_in_their_cells() -> None:
    metrics = pd.DataFrame({"time": ["2026-01-05T03:00Z", "2026-01-05T12:00Z"], "busy": [0.38, 0.9]})
    figure = idle_map(idle_by_hour(metrics))
    assert texts(figure)[1] == "Mon"
    assert texts(figure)[-2:] == ["62", "10"]


def test_medians_over_time_are_named_at_their_end() -> None:
    days = pd.to_datetime(["2026-01-05", "2026-01-06"] * 2, utc=True).astype("datetime64[s, UTC]")
    middle = [1e4, 2e4, 1e6, 1e6]
    table = pd.DataFrame(
        {"batch_start": days, "label": ["a", "a", "b", "b"], "samples": 10, "p50": middle, "p50_low": middle}
    )
    figure = trend_lines(table.assign(p50_high=table["p50"]), title="Duration", unit="ns")
    (axes,) = figure.axes
    assert sorted(each.get_text() for each in axes.texts) == ["a", "b"]
    assert axes.get_yscale() == "log"
    assert sorted(line.get_ydata()[-1] for line in axes.lines) == [2e4, 1e6]


def test_nothing_to_show_says_so() -> None:
    empty = pd.DataFrame({"label": [], "share": [], "quadrant": []})
    for figure in (
        interval_bars(empty, value="share", title="x"),
        quadrant_bars(empty),
        trend_lines(empty, title="x", unit="ns"),
    ):
        assert "There is nothing to show." in texts(figure)
    nothing = idle_by_hour(pd.DataFrame({"time": [], "busy": []}).astype({"busy": float}))
    assert "No hour was measured." in texts(idle_map(nothing))
