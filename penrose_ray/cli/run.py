"""`penrose run`: the whole way once, from launches to an opened release and a report."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penrose_ray.cli.memory import PeakMemory
from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows, say
from penrose_ray.cli.precheck import precheck
from penrose_ray.cli.report import of_ledger
from penrose_ray.errors import ConfigError, GateError
from penrose_ray.settings import load_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.actors.client import ClientCounts
    from penrose_ray.actors.opened import OpenedFile
    from penrose_ray.actors.topology import Progress, Topology
    from penrose_ray.release.handover import Handover
    from penrose_ray.settings import Settings
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId

RELEASE = "release.parquet"
REPORT = "report.html"
SUMMARY = "run.json"
SAMPLE = "sample.parquet"
_PROGRESS_S = 5.0
_COLUMNS = ("class", "gpu_model", "counter", "reports", "real_reports", "samples", "mean", "p95")


class Stopwatch:
    """Seconds of each step, in order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str, text: str) -> Iterator[None]:
        """Time a step and say what happens."""
        say(text)
        started = time.monotonic()
        yield
        self.seconds[name] = round(time.monotonic() - started, 2)


def run(
    config: Annotated[Path, typer.Argument(help="A configuration such as configs/laptop.toml.")],
    overrides: SetOption = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Start the service and its clients, collect for run.seconds, release, open and report.

    Example: penrose run configs/laptop.toml --set run.seconds=10

    Writes release.parquet, report.html and run.json into run.out_dir and prints a row a class and counter.
    """
    settings, draft = load_settings(config, tuple(overrides or ()))
    if not settings.design_server.is_here:
        raise ConfigError("penrose run opens what it collects.", remedy="Set design_server.key_file.")
    precheck(settings, draft)
    out = settings.run.out_dir
    for name in (RELEASE, REPORT, SUMMARY, SAMPLE):
        (out / name).unlink(missing_ok=True)  # what lies there afterwards is this run's
    watch = Stopwatch()
    with PeakMemory() as memory:
        from penrose_ray.actors.topology import build  # noqa: PLC0415 - Ray takes 0.3 s to import

        with watch.step("start", "starting Ray, the design server, matcher, shards and gateway"):
            topology = build(_by_hand(settings), draft)
        with topology:
            counts = _collect(topology, settings, watch)
            handovers = _release(topology, watch)
            with watch.step("open", "the design server decrypts and checks the sums"):
                opened = topology.open(handovers, out / RELEASE)
            sample = topology.check_sample(out / SAMPLE)
    ledger = settings.design_server.releases_dir / f"{topology.task.task_id.hex()}.ledger"
    known = of_ledger(ledger, "", topology.task.task_id, {each.batch for each in handovers})
    _report(out, watch, memory.peak_mb, known)
    summary = _summary(watch, memory.peak_mb, counts, handovers, opened)
    if sample:
        summary["sealed_sample"] = asdict(sample)
        say(f"sealed sample: {sample.reports} reports, {sample.sums} decrypted sums equal the plain ones")
    (out / SUMMARY).write_text(json.dumps(summary, indent=2) + "\n")
    _print(out, form)
    say(f"{out / RELEASE}, {out / REPORT}, {out / SUMMARY} written; peak memory {memory.peak_mb:,.0f} MB")


def _by_hand(settings: Settings) -> Settings:
    """These settings without hand-overs but the run's own at its end."""
    service = settings.service.model_copy(update={"handover_every_s": 0.0})
    return settings.model_copy(update={"service": service})


def _collect(topology: Topology, settings: Settings, watch: Stopwatch) -> list[ClientCounts]:
    with watch.step("collect", f"collecting for {settings.run.seconds:g} s at {topology.url}"):
        topology.start_clients()
        for progress in topology.watch(settings.run.seconds, _PROGRESS_S):
            say(_progress_line(progress))
        return topology.stop_clients()


def _progress_line(progress: Progress) -> str:
    return (
        f"  {progress.launches:>9,} launches  {progress.samples:>7,} samples  "
        f"{progress.accepted:>6,} reports accepted  {progress.sums:>4} encrypted sums"
    )


def _release(topology: Topology, watch: Stopwatch) -> list[Handover]:
    with watch.step("release", "closing the batch; sums with enough reports pass the gate"):
        handovers = [topology.release(batch) for batch in topology.batches()]
    for each in handovers:
        _say_batch(topology.task, each.batch)
    entries = sum(len(each.entries) for each in handovers)
    withheld = sum(each.withheld.sums for each in handovers)
    say(f"  {entries} sums handed over, {withheld} withheld")
    if not entries:
        raise GateError(
            f"No sum reached k = {topology.task.min_contributors} reports; {withheld} were withheld.",
            remedy="Collect longer (--set run.seconds=60) or lower task.min_contributors.",
        )
    return handovers


def _say_batch(task: Task, batch: BatchId) -> None:
    """A batch is released once: what comes after its release is counted in the next one, under its date."""
    if batch > task.batch_of(time.time()):
        start = datetime.fromtimestamp(batch * task.batch_s, tz=UTC)
        say(
            f"  today's batch was released by an earlier run, so these reports joined batch {batch}; "
            f"the report shows its date, {start:%Y-%m-%d %H:%M} UTC"
        )


def _report(out: Path, watch: Stopwatch, peak_mb: float, known: dict[str, Any]) -> None:
    from penrose_ray.analyse.report import write_report  # noqa: PLC0415 - 0.6 s of matplotlib

    run = {"seconds": dict(watch.seconds), "peak_pss_mb": round(peak_mb), **known}
    with watch.step("report", "drawing the report"):
        write_report(out / RELEASE, out / REPORT, run=run)


def _summary(
    watch: Stopwatch,
    peak_mb: float,
    counts: list[ClientCounts],
    handovers: list[Handover],
    opened: OpenedFile,
) -> dict[str, object]:
    return {
        "seconds": watch.seconds,
        "peak_pss_mb": round(peak_mb),
        "launches": sum(each.launches for each in counts),
        "samples": sum(each.samples for each in counts),
        "reports_sent": sum(each.reports + each.cover_reports for each in counts),
        "cover_reports_sent": sum(each.cover_reports for each in counts),
        "dropped_samples": sum(each.dropped_samples for each in counts),
        "sums_withheld": sum(each.withheld.sums for each in handovers),
        "sums_opened": opened.histograms,
        "reports_opened": opened.reports,
        "real_reports_opened": opened.real_reports,
        "discarded": list(opened.discarded),
    }


def _print(out: Path, form: Format) -> None:
    from penrose_ray.analyse.frames import class_table, open_release  # noqa: PLC0415 - pandas

    frame = open_release(out / RELEASE)
    table = class_table(out / RELEASE)
    table["class"] = table["label"].astype("str")
    table["counter"] = table["counter"].astype("str") + " [" + table["unit"].astype("str") + "]"
    rows = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    demo = "DEMO: " if frame.attrs["demo"] else ""
    print_rows(rows, _COLUMNS, form, f"{demo}opened histograms, a row a class and counter")
