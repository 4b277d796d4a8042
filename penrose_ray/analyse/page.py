"""The report's page: one HTML file with its style inside, no script, nothing fetched."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from penrose_ray.analyse.theme import TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DARK = {
    "ink": "#e7ebf0",
    "quiet": "#9aa7b5",
    "rule": "#323c48",
    "paper": "#12171d",
    "accent": "#6ea3f2",
    "class-1": "#6ea3f2",
    "class-2": "#f0935a",
    "class-3": "#4cc3ab",
    "class-4": "#e47fb8",
    "class-5": "#a892f5",
    "class-6": "#cdb64e",
    "class-7": "#66bfe2",
    "class-8": "#d98a6c",
}


def _variables(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{colour};" for name, colour in colours.items())


_STYLE = """
:root{color-scheme:light dark;LIGHT--wash:#f3f5f7;--warn:#8a3b00;--warn-wash:#fdf1e3;
--sans:ui-sans-serif,system-ui,-apple-system,"Segoe UI","Helvetica Neue",Arial,sans-serif;
--mono:ui-monospace,"SF Mono","Cascadia Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace}
@media screen and (prefers-color-scheme:dark){:root{DARK--wash:#1a2129;--warn:#ffbe85;--warn-wash:#33230f}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.55 var(--sans)}
main,header,footer{max-width:62rem;margin:0 auto;padding:0 1.5rem}
header{padding-top:3.5rem}
.eyebrow{margin:0 0 .6rem;font-size:.8rem;letter-spacing:.09em;text-transform:uppercase;color:var(--quiet)}
h1{margin:0;font-size:clamp(1.9rem,5vw,2.7rem);line-height:1.12;letter-spacing:-.02em;font-weight:680}
h1 .badge{display:inline-block;vertical-align:.28em;margin-left:.5rem;padding:.18em .6em;border-radius:.3em;
font-size:.42em;letter-spacing:.08em;font-weight:700;color:var(--warn);background:var(--warn-wash);
border:1.5px solid currentColor}
.when{margin:.7rem 0 0;color:var(--quiet)}
.demo{margin:1.6rem 0 0;padding:.9rem 1.1rem;border-left:4px solid var(--warn);background:var(--warn-wash)}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.2rem,1fr));margin:2.2rem 0 0;padding:0;
border-top:2px solid var(--ink);border-bottom:1px solid var(--rule)}
.facts div{display:flex;flex-direction:column-reverse;padding:.9rem 1rem .9rem 0}
.facts dt{font-size:.82rem;color:var(--quiet)}
.facts dd{margin:0;font-size:1.65rem;line-height:1.2;font-weight:640;font-variant-numeric:tabular-nums;
letter-spacing:-.01em}
section{margin:3.4rem 0 0}
h2{margin:0 0 .5rem;font-size:1.3rem;letter-spacing:-.01em;line-height:1.25}
h3{margin:1.8rem 0 .3rem;font-size:1rem}
p,li{max-width:44rem}
p{margin:.5rem 0}
.lead{font-size:1.1rem}
.lead li{margin:.35rem 0}
ul{padding-left:1.15rem}
code{font-family:var(--mono);font-size:.86em;overflow-wrap:anywhere}
.wide{overflow-x:auto;margin-top:1rem}
table{border-collapse:collapse;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
caption{text-align:left;color:var(--quiet);padding-bottom:.5rem}
th{font-weight:600;text-align:left;vertical-align:bottom;padding:.4rem .9rem .4rem 0;
border-bottom:1.5px solid var(--ink)}
td{padding:.36rem .9rem .36rem 0;border-bottom:1px solid var(--rule);vertical-align:top}
th:last-child,td:last-child{padding-right:0}
.number{text-align:right;white-space:nowrap}
td code{white-space:nowrap}
.dot{display:inline-block;width:.62em;height:.62em;border-radius:50%;margin-right:.5em}
tr.group th{padding-top:1.3rem;border-bottom:1px solid var(--rule);break-after:avoid}
tr.group span:last-child{margin-left:.5rem;font-weight:400;color:var(--quiet)}
small{color:var(--quiet)}
figure{margin:1.6rem 0 0;break-inside:avoid}
figure svg{display:block;width:100%;max-width:54rem;height:auto}
figure.narrow svg{max-width:36rem}
figcaption{margin-top:.4rem;max-width:44rem;font-size:.86rem;color:var(--quiet)}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(19rem,1fr));gap:0 2.5rem}
.steps{margin:1rem 0 0;padding:0;list-style:none;font-size:.9rem}
.steps li{display:grid;grid-template-columns:10rem 1fr 5rem;gap:1rem;align-items:center;max-width:none;
padding:.2rem 0}
.steps i{display:block;height:.55rem;background:var(--accent);border-radius:1px;min-width:1px}
footer{margin-top:4rem;padding-top:1rem;padding-bottom:3rem;font-size:.82rem;color:var(--quiet)}
footer div{border-top:1px solid var(--rule);padding-top:1rem}
@page{margin:16mm 14mm}
@media print{body{font-size:10.5pt}header{padding-top:0}main,header,footer{max-width:none;padding:0}
section{margin-top:1.6rem}.wide{overflow:visible}table{font-size:8.5pt}h2,h3{break-after:avoid}
tr{break-inside:avoid}thead{display:table-header-group;break-after:avoid}caption{break-after:avoid}
figure{margin-top:.8rem}figure svg{max-width:100%;max-height:8.8cm}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
""".replace("LIGHT", _variables(TOKENS)).replace("DARK", _variables(_DARK))


def page(*, title: str, header: str, body: str, footer: str) -> str:
    """The whole file; `header`, `body` and `footer` are HTML, `title` is text."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<header>{header}</header>\n<main>{body}</main>\n<footer><div>{footer}</div></footer>\n"
        "</body>\n</html>\n"
    )


def section(title: str, content: str) -> str:
    """A titled part of the page."""
    return f"\n<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>\n"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Key figures in one row: name and value."""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{rows}</dl>'


def items(texts: Iterable[str], *, lead: bool = False) -> str:
    """A list of HTML texts."""
    kind = ' class="lead"' if lead else ""
    return f"<ul{kind}>{''.join(f'<li>{text}</li>' for text in texts)}</ul>"


def table(head: Sequence[str], rows: Iterable[str], *, caption: str, numbers: Sequence[int]) -> str:
    """A table; `rows` are HTML rows, `numbers` the positions of right-aligned columns."""
    cells = "".join(
        f'<th scope="col"{" class=number" if place in numbers else ""}>{escape(text)}</th>'
        for place, text in enumerate(head)
    )
    return (
        f'<div class="wide" role="region" aria-label="{escape(caption)}" tabindex="0"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def figure(svg: str, caption: str, *, narrow: bool = False) -> str:
    """A figure with its caption; `svg` carries its own alternative text."""
    kind = ' class="narrow"' if narrow else ""
    return f"<figure{kind}>{svg}<figcaption>{escape(caption)}</figcaption></figure>"


def steps(seconds: Sequence[tuple[str, float]]) -> str:
    """Named durations as bars."""
    longest = max((each for _, each in seconds), default=0.0) or 1.0
    rows = "".join(
        f'<li><span>{escape(name)}</span><span><i style="width:{100 * each / longest:.1f}%"></i></span>'
        f'<span class="number">{each:.2f} s</span></li>'
        for name, each in seconds
    )
    return f'<ul class="steps">{rows}</ul>'
