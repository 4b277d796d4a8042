"""The report: a release as one self-contained HTML file.

The same release and run give the same bytes: no clock, no random id.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penrose_ray.analyse import page
from penrose_ray.analyse.fleet import classes_by_size
from penrose_ray.analyse.frames import summarise, tidy
from penrose_ray.analyse.joint import joint_sets
from penrose_ray.analyse.kinds import has_kinds
from penrose_ray.analyse.panels import (
    class_panel,
    distribution_panels,
    findings,
    joint_panel,
    kind_panel,
    share_panel,
)
from penrose_ray.analyse.released import Histograms, Paths, read_histograms
from penrose_ray.analyse.statements import method, privacy
from penrose_ray.analyse.wording import NOTHING, plain_name, whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


def write_report(
    release_path: Paths,
    out_path: str | os.PathLike[str],
    *,
    run: Mapping[str, Any] | None = None,
    labels: str | os.PathLike[str] | None = None,
) -> None:
    """Write the report of a release.

    Args:
        release_path: the Parquet file of an opened release, or several of one task.
        out_path: the HTML file; replaced whole or not at all.
        run: what is known of the run that made it: `seconds` (step to seconds), `peak_pss_mb`; of the
            service's ledger: `epsilon_spent`, `coverage` (share of all reports that were handed over),
            `withheld_sums`, `withheld_reports`, `drop_rate`; other keys are left out.
        labels: names of classes, as `frames.open_release` takes them.

    Raises:
        ReleaseFormatError: a file is not a release, or two do not fit together.
        ConfigError: matplotlib is not installed, or the labels cannot be read.
    """
    write(read_histograms(release_path, batches="sum", labels=labels), out_path, run or {})


def write(histograms: Histograms, out_path: str | os.PathLike[str], run: Mapping[str, Any]) -> None:
    """Write the report of histograms that are read already; see `write_report`."""
    text = render(histograms, run)
    place = Path(out_path)
    place.parent.mkdir(parents=True, exist_ok=True)
    unfinished = place.with_name(f".{place.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(place)


def render(histograms: Histograms, run: Mapping[str, Any]) -> str:
    """The report's HTML."""
    table = summarise(histograms)
    frame = tidy(histograms)
    demo = bool(histograms.facts["demo"])
    name = str(histograms.facts["task_name"] or "Empty release")
    task_id = str(histograms.facts["task_id"] or NOTHING)
    parts = [
        page.section("What stands out", page.items(findings(table, frame), lead=True)),
        page.section("Share of the fleet", share_panel(frame)),
        page.section(
            "Classes", class_panel(table, classes_by_size(frame), sub_batches=histograms.sub_batches)
        ),
        page.section("Distributions", "".join(distribution_panels(frame))),
        *([page.section("Memory and tensor cores", joint_panel(frame))] if joint_sets(frame) else []),
        *([page.section("Kinds of kernels", kind_panel(frame))] if has_kinds(frame) else []),
        page.section("Privacy", page.items(privacy(histograms, run))),
        page.section("Method", page.items(method(histograms))),
        *([page.section("This run", _run(run))] if run.get("seconds") else []),
    ]
    return page.page(
        title=f"{name}{' (DEMO)' if demo else ''} - penrose-ray report",
        header=_header(histograms, table, name, demo=demo),
        body="".join(parts),
        footer=f"Task <code>{escape(task_id)}</code>. Written by penrose-ray.",
    )


def _header(histograms: Histograms, table: pd.DataFrame, name: str, *, demo: bool) -> str:
    rows = histograms.stored
    badge = ' <span class="badge">DEMO</span>' if demo else ""
    warning = (
        '<p class="demo"><b>This is a demo.</b> Its task has no tokens and k counts accepted reports, so it '
        "protects nobody. Its numbers are real, its privacy is not.</p>"
        if demo
        else ""
    )
    counts = page.facts(
        [
            ("classes", f"{table['class_id'].nunique():,}"),
            ("GPU models", f"{table['gpu_model'].nunique():,}"),
            ("reports", whole(rows["reports"].sum())),
            ("of them real", whole(rows["real_reports"].sum())),
            ("samples", whole(rows["samples"].sum())),
        ]
    )
    return (
        f'<p class="eyebrow">penrose-ray release report</p><h1>{escape(name)}{badge}</h1>'
        f'<p class="when">{escape(_period(rows))}</p>{warning}{counts}'
    )


def _period(rows: pd.DataFrame) -> str:
    if rows.empty:
        return "No batch"
    start, end, batches = rows["batch_start"].min(), rows["batch_end"].max(), rows["batch"].nunique()
    form = "%Y-%m-%d %H:%M"
    return f"{start:{form}} to {end:{form}} UTC, {batches} batch{'es' if batches > 1 else ''}"


def _run(run: Mapping[str, Any]) -> str:
    seconds = run["seconds"]
    steps = page.steps([(plain_name(str(name)), float(each)) for name, each in seconds.items()])
    memory = run.get("peak_pss_mb")
    return steps + (f"<p>Peak memory of all processes: {float(memory):,.0f} MB.</p>" if memory else "")
