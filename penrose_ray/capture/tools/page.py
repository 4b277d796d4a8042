"""Findings as one HTML page that needs nothing beside it."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from penrose_ray.capture.tools.base import Findings

_MOST_ROWS = 200
_BARS = 12
_BAR_HEIGHT, _BAR_WIDTH, _LABEL_WIDTH = 22, 360, 380
_LABEL = 52
_STYLE = """body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem}
h2{margin-top:2.5rem;border-bottom:1px solid #ccc}table{border-collapse:collapse;font-size:13px}
td,th{padding:3px 9px;border-bottom:1px solid #e4e4e4;text-align:left;max-width:420px;overflow-wrap:anywhere}
td.n{text-align:right;font-variant-numeric:tabular-nums}
.advice{background:#f3f6ee;padding:.5rem 1rem;margin:.5rem 0}
.note{color:#6b4e00}.scroll{overflow-x:auto}"""


def page(findings: Sequence[Findings], *, title: str) -> str:
    """The whole page; every text in it is escaped."""
    body = "".join(_section(each) for each in findings)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def _section(findings: Findings) -> str:
    parts = [f"<h2>{escape(findings.tool)}</h2>"]
    parts += [
        f'<div class="advice"><b>{escape(each.text)}</b><br>{escape(each.evidence)} '
        f"Confidence {each.confidence:.0%}.</div>"
        for each in findings.advice
    ]
    parts += [f'<p class="note">{escape(note)}</p>' for note in findings.notes]
    figures = ", ".join(f"{name} {_number(value)}" for name, value in findings.figures.items())
    parts.append(f"<p>{escape(figures)}</p>{bars(findings)}{_table(findings.frame)}")
    return "".join(parts)


def bars(findings: Findings) -> str:
    """A bar chart (SVG) of the table's first column of times or sizes; empty without one."""
    frame = findings.frame
    measure = next((name for name in frame.columns if name.endswith(("_ns", "_bytes"))), None)
    if measure is None or not len(frame):
        return ""
    shown = frame[frame[measure] > 0].nlargest(_BARS, measure)
    if not len(shown):
        return ""
    words = [name for name in frame.columns if not np.issubdtype(frame[name].to_numpy().dtype, np.number)]
    height = _BAR_HEIGHT * (len(shown) + 1)
    head = (
        f'<svg role="img" aria-label="{escape(measure)}" width="{_LABEL_WIDTH + _BAR_WIDTH + 120}" '
        f'height="{height}" font-size="12"><text x="0" y="14" font-weight="bold">{escape(measure)}</text>'
    )
    parts = [head]
    top = float(shown[measure].max())
    for place, (_, row) in enumerate(shown.iterrows(), start=1):
        label = " · ".join(str(row[name]) for name in words if row[name])[-_LABEL:]
        width = _BAR_WIDTH * float(row[measure]) / top
        y = _BAR_HEIGHT * place
        parts.append(
            f'<text x="{_LABEL_WIDTH - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>'
            f'<rect x="{_LABEL_WIDTH}" y="{y + 3}" width="{width:.1f}" height="16" fill="#5b7f2b"/>'
            f'<text x="{_LABEL_WIDTH + width + 6:.1f}" y="{y + 15}">{_number(row[measure])}</text>'
        )
    return "".join([*parts, "</svg>"])


def _table(frame: pd.DataFrame) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in frame.columns)
    rows = "".join(
        "<tr>" + "".join(_cell(value) for value in row) + "</tr>"
        for row in frame.head(_MOST_ROWS).itertuples(index=False)
    )
    more = f"<p>{len(frame) - _MOST_ROWS} more rows.</p>" if len(frame) > _MOST_ROWS else ""
    return f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{more}'


def _cell(value: object) -> str:
    if isinstance(value, str | bool | np.bool_):
        return f"<td>{escape(str(value))}</td>"
    return f'<td class="n">{_number(value)}</td>'


def _number(value: object) -> str:
    number = float(value)  # type: ignore[arg-type] # tables hold text and numbers only
    if np.isnan(number):
        return "not measured"
    return f"{number:,.0f}" if number.is_integer() or abs(number) >= 1e4 else f"{number:,.4g}"  # noqa: PLR2004 - readable numbers
