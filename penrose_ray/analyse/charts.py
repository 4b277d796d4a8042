"""Figures of the insights: bars with intervals, quadrants, idle hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.analyse.canvas import canvas, nothing
from penrose_ray.analyse.joint import QUADRANTS
from penrose_ray.analyse.theme import ACCENT, CLASSES, INK, PAPER, QUIET, RULE, drawing
from penrose_ray.analyse.wording import percent, quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from matplotlib.figure import Figure

_ROW_IN = 0.34
_DARK_CELL = 0.75


def interval_bars(
    table: pd.DataFrame,
    *,
    value: str,
    title: str,
    low: str | None = None,
    high: str | None = None,
    rows: str = "label",
    most_rows: int = 24,
    form: Callable[[float], str] = percent,
) -> Figure:
    """A bar a row with its interval, for any table of insights.

    Args:
        table: one row a bar, in the order they are drawn.
        value: column of the bars' lengths; NaN draws the interval alone.
        title: what the bars show.
        low: column of the intervals' lower ends.
        high: column of the intervals' upper ends.
        rows: column of the bars' names.
        most_rows: rows that are drawn.
        form: how values are written.
    """
    shown = table.head(most_rows)
    if shown.empty:
        return nothing(title, "There is nothing to show.")
    lengths = shown[value].to_numpy(np.float64)
    ends = [shown[each].to_numpy(np.float64) if each else lengths for each in (low, high)]
    with drawing():
        figure, axes = canvas(0.7 + _ROW_IN * len(shown))
        place = -np.arange(len(shown), dtype=np.float64)
        axes.barh(place, np.nan_to_num(lengths), height=0.62, color=ACCENT)
        if low and high:
            axes.hlines(place, ends[0], ends[1], color=INK, linewidth=1.2)
        for y, length, end in zip(place, lengths, ends[1], strict=True):
            x = np.nanmax([length, end, 0.0])
            text = form(float(length)) if np.isfinite(length) else ""
            axes.annotate(text, (x, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=8)
        axes.set_yticks(place, [str(each) for each in shown[rows]])
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1.18 * max(np.nanmax([lengths, ends[1]]), 1e-12))
        axes.xaxis.set_major_formatter(lambda number, _: form(number))
        axes.grid(visible=True, axis="x")
        axes.set_axisbelow(True)
        axes.set_title(title)
    return figure


def quadrant_bars(table: pd.DataFrame, *, most_rows: int = 16) -> Figure:
    """One bar a class, cut into the four quadrants of `joint.quadrants`."""
    title = "Memory and tensor cores: who works when"
    names = list(dict.fromkeys(table["label"]))[:most_rows]
    if not names:
        return nothing(title, "There is nothing to show.")
    colours = (CLASSES[0], CLASSES[2], CLASSES[1], RULE)
    with drawing():
        figure, axes = canvas(1.0 + _ROW_IN * len(names))
        for row, name in enumerate(names):
            part = table[table["label"] == name].set_index("quadrant")["share"]
            start = 0.0
            for quadrant, colour in zip(QUADRANTS, colours, strict=True):
                share = float(part.get(quadrant, 0.0))
                first = quadrant if row == 0 else None
                axes.barh(-row, share, left=start, height=0.66, color=colour, edgecolor=PAPER, label=first)
                start += share
        axes.set_yticks(-np.arange(len(names)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(lambda number, _: f"{100 * number:.0f} %")
        axes.legend(loc="upper left", bbox_to_anchor=(0, -0.12), ncols=4, frameon=False, labelcolor=QUIET)
        axes.set_title(title)
    return figure


def trend_lines(table: pd.DataFrame, *, title: str, unit: str, most_rows: int = len(CLASSES)) -> Figure:
    """Medians over time with their intervals, a line a class, as `over_time.trend` makes them."""
    if table.empty:
        return nothing(title, "There is nothing to show.")
    sizes = table.groupby("label")["samples"].sum().sort_values(ascending=False, kind="stable")
    with drawing():
        figure, axes = canvas(3.2)
        for colour, label in zip(CLASSES, sizes.index[:most_rows], strict=False):
            part = table[table["label"] == label]
            time = part["batch_start"].dt.tz_localize(None).to_numpy()
            axes.fill_between(time, part["p50_low"], part["p50_high"], color=colour, alpha=0.25, linewidth=0)
            axes.plot(time, part["p50"], color=colour, linewidth=1.4, marker="o", markersize=3)
            last = (time[-1], part["p50"].to_numpy()[-1])
            axes.annotate(
                str(label), last, xytext=(6, 0), textcoords="offset points", va="center", fontsize=8
            )
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda number, _: quantity(number, unit))
        axes.yaxis.set_minor_formatter(lambda *_: "")
        figure.autofmt_xdate(rotation=0, ha="center")
        axes.grid(visible=True)
        axes.set_axisbelow(True)
        axes.set_title(title)
    return figure


def idle_map(table: pd.DataFrame) -> Figure:
    """Idle share by day of week (rows) and hour (columns), as `idle.idle_by_hour` makes it."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - an extra

    title = "Idle share by hour (UTC)"
    values = table.to_numpy(np.float64)
    if not np.isfinite(values).any():
        return nothing(title, "No hour was measured.")
    with drawing():
        figure, axes = canvas(3.0)
        for (day, hour), share in np.ndenumerate(values):
            if np.isfinite(share):
                cell = Rectangle((hour, -day), 1, 1, facecolor=ACCENT, alpha=float(share), edgecolor=PAPER)
                axes.add_patch(cell)
                colour = PAPER if share > _DARK_CELL else INK
                text = f"{100 * share:.0f}"
                axes.annotate(
                    text, (hour + 0.5, 0.5 - day), ha="center", va="center", fontsize=6.5, color=colour
                )
        axes.set_xlim(0, 24)
        axes.set_ylim(1 - len(values), 1)
        axes.set_xticks(np.arange(0, 25, 3))
        axes.set_yticks(0.5 - np.arange(len(values)), list(table.index))
        axes.tick_params(length=0)
        axes.set_title(f"{title}, in percent")
    return figure
