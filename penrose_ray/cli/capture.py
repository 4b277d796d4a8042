"""`penrose capture`: run an unmodified program under capture and let tools look at it; printing findings."""

from __future__ import annotations

import json
import math
import os
import secrets
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from penrose_ray.capture.tools.base import Findings, Tool
    from penrose_ray.capture.tools.trace import Trace

SALT_BYTES = 32
_TABLE_ROWS = 20
ToolsOption = Annotated[
    str, typer.Option("-t", "--tools", metavar="TOOL,...", help="Tools to run; docs/tools.md lists them.")
]
RedactOption = Annotated[
    bool, typer.Option("--redact", help="Pseudonyms for all names, so that the result can be passed on.")
]
RegionOption = Annotated[
    str, typer.Option("--region", help="Only what ran inside regions of this name (pr.annotate, NVTX).")
]
PageOption = Annotated[Path | None, typer.Option("--html", help="Also write a page with figures.")]


def capture(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The program to run.")],
    tools: ToolsOption = "kernel_frequency",
    source: Annotated[
        str | None, typer.Option("--source", help="How to capture: opencl or cuda; else all that work here.")
    ] = None,
    page: PageOption = None,
    form: FormatOption = Format.TABLE,
    region: RegionOption = "",
    *,
    redact: RedactOption = False,
) -> None:
    """Run an unmodified program under capture, then show its launches to tools.

    Example: penrose capture -t kernel_frequency,timeline_gaps -- python train.py

    PENROSE_SAMPLING_RATE=S times one launch in S; the others are counted without their times.
    """
    from penrose_ray.capture.survey import launchpad  # noqa: PLC0415 - numpy and the sources
    from penrose_ray.capture.tools.live import sampling_rate, watch  # noqa: PLC0415 - as above
    from penrose_ray.capture.tools.reading import of_recording  # noqa: PLC0415 - as above
    from penrose_ray.capture.tools.regions import only  # noqa: PLC0415 - as above
    from penrose_ray.capture.tools.session import analyse  # noqa: PLC0415 - as above

    chosen = chosen_tools(tools)
    rate = sampling_rate(os.environ)
    with tempfile.TemporaryDirectory(prefix="penrose-") as directory:
        pad = launchpad(Path(directory) / "rings", source)
        for name, reason in pad.left_out.items():
            say(f"not captured by {name}: {reason}")
        recording, status = watch(pad, command, Path(directory) / "rings", rate=rate)
    launches, devices = len(recording.batch), len(recording.devices)
    say(f"{command[0]} ended with {status} after {launches} launches on {devices} devices")
    for warning in recording.tally.snapshot().warnings:
        say(f"warning: {warning}")
    traces = only(of_recording(recording, Path(command[0]).name), region)
    if region:
        traces = announced(traces, redact=redact)
    show(analyse(traces, chosen), chosen, form, page, redact=redact)
    if status:
        raise typer.Exit(status if status > 0 else 128 - status)


def chosen_tools(names: str) -> list[Tool]:
    """New tools from a list of names with commas."""
    from penrose_ray.capture.tools.registry import load  # noqa: PLC0415 - looks through installed packages

    wanted = [name.strip() for name in names.split(",") if name.strip()]
    if not wanted:
        raise ConfigError("No tool is named.", remedy="Name some: -t kernel_frequency,timeline_gaps.")
    return load(wanted)


def announced(traces: Iterable[Trace], *, redact: bool) -> Iterator[Trace]:
    """The same ranks; what is wrong with one is said on stderr, only how much when names are redacted."""
    for trace in traces:
        if redact and trace.warnings:
            say(f"warning: {len(trace.warnings)} warnings about a file; without --redact they are shown")
        for warning in () if redact else trace.warnings:
            say(f"warning: {trace.label}: {warning}")
        yield trace
        del trace  # or it would stay while the next rank is read


def show(
    findings: Sequence[Findings], tools: Sequence[Tool], form: Format, page: Path | None, *, redact: bool
) -> None:
    """Print findings to stdout, JSON as a list with one object a tool, and write the page."""
    from penrose_ray.capture.tools.page import page as html  # noqa: PLC0415 - pandas
    from penrose_ray.capture.tools.redact import redacted  # noqa: PLC0415 - pandas

    findings = (
        redacted(findings, tools, secrets.token_bytes(SALT_BYTES)) if redact else _scrubbed(findings, tools)
    )
    if page is not None:
        page.write_text(html(findings, title="What the tools found"), encoding="utf-8")
    if form is Format.JSON:
        print(json.dumps([_plain(each) for each in findings], indent=2))
        return
    for each in findings:
        rows = _rows(each)
        shown = rows if form is Format.CSV else rows[:_TABLE_ROWS]
        print_rows(shown, list(each.frame.columns), form, each.tool)
        if len(shown) < len(rows):
            say(f"{each.tool}: {len(rows) - len(shown)} more rows; --format json or csv shows them")
        for note in each.notes:
            say(f"{each.tool}: {note}")
        for advice in each.advice:
            say(f"{each.tool}: {advice.text}\n  evidence: {advice.evidence}")
            say(f"  confidence: {advice.confidence:.0%}")


def _scrubbed(findings: Sequence[Findings], tools: Sequence[Tool]) -> list[Findings]:
    """Findings without who and where in their labels and texts; kernels and operators keep their names."""
    from penrose_ray.capture.scrub import Scrubber  # noqa: PLC0415 - only where findings are shown

    scrub = Scrubber.of_this_machine()
    scrubbed = []
    for each, tool in zip(findings, tools, strict=True):
        frame = each.frame.copy()
        names = set(tool.secret) - {"rank"}
        for column in set(frame.select_dtypes(exclude="number").columns) - names:
            frame[column] = [scrub(cell) if isinstance(cell, str) else cell for cell in frame[column]]
        advice = tuple(
            replace(one, text=scrub(one.text), evidence=scrub(one.evidence)) for one in each.advice
        )
        scrubbed.append(
            replace(each, frame=frame, advice=advice, notes=tuple(scrub(note) for note in each.notes))
        )
    return scrubbed


def _plain(findings: Findings) -> dict[str, object]:
    """JSON has no NaN: what was not measured is null."""
    return {
        "tool": findings.tool,
        "rows": [{name: _value(value) for name, value in row.items()} for row in _rows(findings)],
        "figures": {name: _value(value) for name, value in findings.figures.items()},
        "advice": [
            {"text": each.text, "evidence": each.evidence, "confidence": each.confidence}
            for each in findings.advice
        ],
        "notes": list(findings.notes),
    }


def _rows(findings: Findings) -> list[dict[str, object]]:
    return [{str(name): value for name, value in row.items()} for row in findings.frame.to_dict("records")]


def _value(value: object) -> object:
    item = value.item() if hasattr(value, "item") else value
    return None if isinstance(item, float) and not math.isfinite(item) else item
