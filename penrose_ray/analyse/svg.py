"""A matplotlib figure as inline SVG that follows the page's colours and fonts."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING

from penrose_ray.analyse.theme import TOKENS, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LINKS = re.compile(r'(\bid="|href="#|url\(#)')
_FONTS = re.compile(r"font: (?:(\d+|bold) )?([\d.]+)px [^;\"]*")
_DECIMALS = re.compile(r"(\d+\.\d\d)\d+")


def inline(figure: Figure, *, name: str, alt: str) -> str:
    """An `<svg>` element: colours are the page's variables, ids are unique by `name`, text stays text.

    Args:
        figure: a figure of `penrose_ray.analyse.figures`.
        name: unique in the page, letters and digits.
        alt: alternative text for those who do not see the figure.
    """
    buffer = io.StringIO()
    with drawing({"svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = _LINKS.sub(rf"\g<1>{name}-", text)
    text = _FONTS.sub(_page_font, text)
    text = _DECIMALS.sub(r"\1", text)
    for token, colour in TOKENS.items():
        text = text.replace(colour, f"var(--{token})")
    box = re.search(r'viewBox="[^"]*"', text)
    spoken = f'{box[0] if box else ""} preserveAspectRatio="xMinYMid" role="img" aria-label="{escape(alt)}"'
    return f"<svg {spoken}>{text[text.index('>') + 1 :]}"


def _page_font(match: re.Match[str]) -> str:
    weight, size = match.groups()
    family = "mono" if "ono" in match.group(0) else "sans"
    return f"font: {weight or 400} {size}px var(--{family})"
