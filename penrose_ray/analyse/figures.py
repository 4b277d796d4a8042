"""Figures of a release: pure functions from a frame of `open_release` to a matplotlib Figure.

Nothing touches pyplot or global state. A class keeps its colour over all figures of the same frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.analyse.canvas import canvas, nothing
from penrose_ray.analyse.fleet import bins_of, classes_by_size, fleet_shares, noise_of
from penrose_ray.analyse.frames import counter_set_of
from penrose_ray.analyse.joint import QUADRANTS, joint_sets, quadrants
from penrose_ray.analyse.percentiles import percentile_along
from penrose_ray.analyse.theme import ACCENT, CLASSES, INK, PAPER, QUIET, RULE, drawing
from penrose_ray.analyse.wording import percent, plain_name, quantity, unit_apart
from penrose_ray.histogram import marginal

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from penrose_ray.histogram import Axis

MOST_CLASSES = 12
"""Classes that a figure shows by default, the largest first."""
_ROW_IN = 0.52
_MARK_COLUMNS = {"median": 1.1, "p95": 1.21}
"""Where a row's values stand, as shares of the axes' width."""
_CORNERS = dict(zip(QUADRANTS, ((True, True), (False, True), (True, False), (False, False)), strict=True))
"""Where a quadrant lies: right (DRAM used), top (tensor cores used)."""


def distribution(
    frame: pd.DataFrame, counter_set: str, axis: int = 0, *, most_classes: int = MOST_CLASSES
) -> Figure:
    """One counter's distribution in each class, a row a class, with median and 95th percentile.

    Args:
        frame: from `open_release`; batches are added up.
        counter_set: a counter set with axes.
        axis: which of a joint set's counters.
        most_classes: the largest classes are shown.
    """
    known = counter_set_of(frame, counter_set)
    rows = frame[frame["counter_set"] == counter_set]
    labels = classes_by_size(rows[rows["count"] > 0])[:most_classes]
    counter = known.counters[axis]
    title = plain_name(counter.name)
    if not labels or not known.axes:
        return nothing(title, f"No class has samples of {counter.name}.")
    counts, marks = {}, {}
    for label in labels:
        part = rows[rows["label"] == label]
        bins, noise = bins_of(part), noise_of(part)
        counts[label] = marginal(known, bins, axis)
        marks[label] = [percentile_along(known, bins, axis, share, noise).value for share in (0.5, 0.95)]
    order = classes_by_size(frame)
    with drawing():
        figure, axes = canvas(0.9 + _ROW_IN * len(counts))
        shown = known.axes[axis]
        heading, unit = unit_apart(counter.unit)
        for place, (label, bins) in enumerate(counts.items()):
            _ridge(axes, shown, bins, -place, colour=_colour(order, label))
            _mark(axes, marks[label], -place, unit)
        _finish_ridges(axes, shown, counts, unit)
        axes.set_title(f"{title}{heading} ({counter.source})")
    return figure


def _outer_edges(axis: Axis) -> NDArray[np.float64]:
    """All edges with a finite one, a bin's width further out, for each open end."""
    edges = axis.edges()
    if axis.scale == "log":
        step = edges[1] / edges[0]
        return np.concatenate(([edges[0] / step], edges, [edges[-1] * step]))
    step = edges[1] - edges[0]
    return np.concatenate(([edges[0] - step], edges, [edges[-1] + step]))


def _ridge(axes: Axes, axis: Axis, counts: NDArray[np.int64], base: int, *, colour: str) -> None:
    heights = base + 0.8 * counts / max(int(counts.max()), 1)
    edges = _outer_edges(axis)
    axes.stairs(heights, edges, baseline=base, fill=True, color=colour, alpha=0.28, linewidth=0)
    axes.stairs(heights, edges, baseline=base, color=colour, linewidth=1.3)
    axes.hlines(base, edges[0], edges[-1], color=RULE, linewidth=0.8)


def _mark(axes: Axes, marks: Sequence[float], base: int, unit: str) -> None:
    """Median and 95th percentile of a row, as lines and in words."""
    median, high = marks
    axes.vlines(median, base, base + 0.8, color=INK, linewidth=1.4)
    axes.vlines(high, base, base + 0.4, color=INK, linewidth=1.0, linestyle=(0, (2, 1.5)))
    for value, x in zip(marks, _MARK_COLUMNS.values(), strict=True):
        _beside(axes, quantity(value, unit), x, base + 0.1, colour=INK)


def _beside(axes: Axes, text: str, x: float, y: float, *, colour: str) -> None:
    axes.annotate(text, (x, y), xycoords=("axes fraction", "data"), color=colour, fontsize=8, ha="right")


def _finish_ridges(axes: Axes, axis: Axis, counts: dict[str, NDArray[np.int64]], unit: str) -> None:
    filled = np.flatnonzero(np.sum(list(counts.values()), axis=0))
    edges = _outer_edges(axis)
    margin = max(2, axis.bins // 24)
    low = edges[max(0, filled[0] - margin)]
    high = edges[min(axis.bins, filled[-1] + 1 + margin)]
    if axis.scale == "log":
        axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(-len(counts) + 0.8, 1.05)
    axes.xaxis.set_major_formatter(lambda value, _: quantity(value, unit))
    axes.xaxis.set_minor_formatter(lambda *_: "")
    axes.tick_params(axis="y", length=0)
    axes.set_yticks([0.1 - place for place in range(len(counts))], list(counts), family="monospace")
    for title, x in _MARK_COLUMNS.items():
        _beside(axes, title, x, 0.82, colour=QUIET)
    axes.grid(visible=True, axis="x", zorder=0)
    axes.set_axisbelow(True)


def fleet_share(frame: pd.DataFrame, *, most_classes: int = MOST_CLASSES) -> Figure:
    """Share of the fleet's launches per class and, where durations were measured, of its GPU time."""
    table = fleet_shares(frame)
    if table.empty:
        return nothing("Launches by class", "The release holds no sample.")
    shown = table.head(most_classes)
    order = classes_by_size(frame)
    launches, time = shown["launch_share"].to_numpy(), shown["time_share"].to_numpy()
    with_time = bool(shown["time_share"].notna().any())
    with drawing():
        figure, axes = canvas(0.75 + (_ROW_IN if with_time else 0.4) * len(shown))
        for place, label in enumerate(shown["label"]):
            colour = _colour(order, label)
            _bar(
                axes,
                -place + (0.17 if with_time else 0),
                launches[place],
                colour,
                text="of launches",
            )
            if with_time:
                _bar(axes, -place - 0.17, time[place], colour, text="of GPU time", faint=True)
        axes.set_yticks([-place for place in range(len(shown))], list(shown["label"]), family="monospace")
        axes.tick_params(axis="y", length=0)
        axes.set_xlim(0, 1.25 * np.nanmax([launches, time]))
        axes.xaxis.set_major_formatter(lambda value, _: percent(value).replace(".0 %", " %"))
        axes.grid(visible=True, axis="x")
        axes.set_axisbelow(True)
        axes.set_title("Launches and GPU time by class" if with_time else "Launches by class")
    return figure


def _bar(axes: Axes, place: float, share: float, colour: str, *, text: str, faint: bool = False) -> None:
    axes.barh(place, share, height=0.3, color=colour, alpha=0.4 if faint else 1.0)
    axes.annotate(
        f"{percent(share)} {text}",
        (share, place),
        xytext=(5, 0),
        textcoords="offset points",
        va="center",
        color=QUIET if faint else INK,
        fontsize=8,
    )


def joint_use(
    frame: pd.DataFrame,
    counter_set: str | None = None,
    *,
    label: str | None = None,
    dram_active: float | None = None,
    tensor_active: float | None = None,
) -> Figure:
    """DRAM use against tensor use of a class (the fleet by default), with the share of each quadrant."""
    title = "Joint use of memory and tensor cores"
    if counter_set is None and not joint_sets(frame):
        return nothing(title, "The task has no joint counter set of DRAM and tensor use.")
    name = counter_set or joint_sets(frame)[0]
    table = quadrants(frame, name, dram_active=dram_active, tensor_active=tensor_active)
    table = table[table["label"] == (label or "all")]
    known = counter_set_of(frame, name)
    rows = frame[frame["counter_set"] == name]
    counts = bins_of(rows[rows["label"] == label] if label else rows)
    if not counts.any():
        return nothing(title, f"No sample of {name}.")
    grid = counts.reshape([axis.bins for axis in known.axes])
    across, up = _tensor_last(known.counters[0].name, known.axes)
    with drawing():
        figure, axes = canvas(4.4, width_in=5.6)
        _cells(axes, grid if across else grid.T, *up)
        _cross(axes, table)
        units = [each.unit for each in (known.counters if across else known.counters[::-1])]
        axes.set_xlabel(f"DRAM active [{units[0]}]")
        axes.set_ylabel(f"tensor cores active [{units[1]}]")
        axes.set_title(f"{title}: {f'class {label}' if label else 'all classes'}")
    return figure


def _tensor_last(first_counter: str, axes: tuple[Axis, ...]) -> tuple[bool, tuple[Axis, Axis]]:
    in_order = "tensor" not in first_counter.lower()
    return in_order, (axes[0], axes[1]) if in_order else (axes[1], axes[0])


def _cells(axes: Axes, grid: NDArray[np.int64], across: Axis, up: Axis) -> None:
    """Cells whose opacity is the root of their share, so that rare combinations stay visible."""
    from matplotlib.patches import Rectangle  # noqa: PLC0415 - an extra

    wide, high = _outer_edges(across), _outer_edges(up)
    strength = np.sqrt(np.clip(grid, 0, None) / max(int(grid.max()), 1))
    for (column, row), opacity in np.ndenumerate(strength):
        if opacity:
            corner = (float(wide[column]), float(high[row]))
            size = (float(wide[column + 1]) - corner[0], float(high[row + 1]) - corner[1])
            cell = Rectangle(corner, *size, facecolor=ACCENT, alpha=opacity, edgecolor=PAPER, linewidth=0.6)
            axes.add_patch(cell)
    axes.set_xscale(across.scale)
    axes.set_yscale(up.scale)
    axes.set_xlim(wide[0 if grid[0].any() else 1], wide[-1 if grid[-1].any() else -2])
    axes.set_ylim(high[0 if grid[:, 0].any() else 1], high[-1 if grid[:, -1].any() else -2])


def _cross(axes: Axes, table: pd.DataFrame) -> None:
    axes.axvline(float(table["dram_active"].iloc[0]), color=INK, linewidth=1.0)
    axes.axhline(float(table["tensor_active"].iloc[0]), color=INK, linewidth=1.0)
    for quadrant, share in zip(table["quadrant"], table["share"], strict=True):
        right, top = _CORNERS[quadrant]
        axes.annotate(
            f"{quadrant}\n{percent(share)}",
            (0.98 if right else 0.02, 0.97 if top else 0.03),
            xycoords="axes fraction",
            ha="right" if right else "left",
            va="top" if top else "bottom",
            color=INK,
            fontsize=9,
            fontweight="bold",
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.82, "pad": 2.5},
        )


def _colour(order: list[str], label: str) -> str:
    return CLASSES[order.index(label) % len(CLASSES)]
