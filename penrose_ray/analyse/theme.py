"""How figures look: few colours, each a token that a page can restyle.

Every token is a colour that occurs nowhere else, so that the report can turn it into a CSS variable and the
figure follows light, dark and print.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

INK = "#1b2430"
QUIET = "#5b6673"
RULE = "#d5dae0"
PAPER = "#fefefd"
ACCENT = "#2363c4"
CLASSES = ("#2364c5", "#c05a11", "#0f7b68", "#a8357a", "#6a4fc3", "#7d6a12", "#23799c", "#96472b")
"""Told apart in pairs by readers with any of the common colour deficiencies; text stands beside each."""

TOKENS = {
    "ink": INK,
    "quiet": QUIET,
    "rule": RULE,
    "paper": PAPER,
    "accent": ACCENT,
    **{f"class-{place}": colour for place, colour in enumerate(CLASSES, start=1)},
}

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 9.0,
    "text.color": INK,
    "axes.edgecolor": RULE,
    "axes.facecolor": "none",
    "axes.labelcolor": QUIET,
    "axes.labelsize": 8.5,
    "axes.linewidth": 0.8,
    "axes.titlesize": 10.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10.0,
    "figure.facecolor": PAPER,
    "figure.constrained_layout.use": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "savefig.facecolor": PAPER,
    "svg.fonttype": "none",
    "xtick.color": RULE,
    "xtick.labelcolor": QUIET,
    "ytick.color": RULE,
    "ytick.labelcolor": INK,
}


@contextmanager
def drawing(more: dict[Any, Any] | None = None) -> Iterator[None]:
    """The style and `more` settings, for the figures made inside; nothing outside changes.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(
            "Figures need matplotlib, which is not installed.",
            remedy="Install it with pip install 'penrose-ray[analysis]'.",
        ) from error
    with mpl.rc_context(_STYLE | (more or {})):
        yield
