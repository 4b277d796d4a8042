"""Empty figures: the size and the few lines that all figures share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.analyse.theme import QUIET, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH_IN = 7.2


def canvas(height_in: float, *, width_in: float = _WIDTH_IN) -> tuple[Figure, Axes]:
    """A figure with one pair of axes; call it inside `drawing()`."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(width_in, height_in))
    axes = figure.add_subplot()
    axes.spines[["top", "right", "left"]].set_visible(False)
    return figure, axes


def nothing(title: str, reason: str) -> Figure:
    """A figure that says why there is nothing to see."""
    with drawing():
        figure, axes = canvas(1.5)
        axes.set_title(title)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.annotate(reason, (0.5, 0.5), xycoords="axes fraction", ha="center", va="center", color=QUIET)
    return figure
