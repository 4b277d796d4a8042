"""`penrose timeline`: what the service did beside what it cost, on one time axis."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.errors import TimelineError, naming
from penrose_ray.release.audit import read_audit
from penrose_ray.release.ledger import check_chain, read_lines
from penrose_ray.release.samples import Series, read_series
from penrose_ray.release.timeline import TICK_S, Event, Row, audit_events, ledger_events, utc
from penrose_ray.release.timeline import timeline as merged

_COLUMNS = ("at", "source", "event", "detail", "check")


def timeline(
    files: Annotated[
        list[Path], typer.Argument(help="Audit logs, ledgers and answers of Prometheus to range queries.")
    ],
    tolerance_s: Annotated[
        float, typer.Option("--tolerance", min=0.001, help="Seconds that clocks may be apart.")
    ] = TICK_S,
    form: FormatOption = Format.TABLE,
) -> None:
    """Put audit events and metrics on one time axis, and say where their clocks disagree.

    Example: penrose timeline state/audit.jsonl releases/TASK.ledger cost.json --format csv

    A file is known by its content. Counters are shown as rates a second. A ledger's signatures are checked.
    """
    sources: list[list[Event]] = []
    series: list[Series] = []
    for file in files:
        raw = _read(file)
        first = _first(raw)
        if "entry" in first:
            whole = raw[: raw.rfind(b"\n") + 1]
            with naming(file):
                entries = check_chain(read_lines(whole))
            sources.append(ledger_events(entries, file.name))
        elif "status" in first:
            series.extend(read_series(raw, str(file)))
        else:
            sources.append(audit_events(read_audit(raw, str(file)), file.name))
    rows = merged(sources, series, tolerance_s)
    columns = (*_COLUMNS, *dict.fromkeys(each.label for each in series))
    print_rows([_row(row, form) for row in rows], columns, form, "what happened beside what it cost")
    if wrong := sum(row.check != "ok" for row in rows):
        say(f"{wrong} of {len(rows)} events are not within {tolerance_s:g} s of the metrics")


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise TimelineError(f"{file} cannot be read: {error.strerror}.", remedy="Check the path.") from error


def _first(raw: bytes) -> dict[str, object]:
    """The first object of a file of JSON, by whose names it is known."""
    for text in (raw, raw.partition(b"\n")[0]):
        try:
            found = msgspec.json.decode(text)
        except msgspec.MsgspecError:
            continue
        return found if isinstance(found, dict) else {}
    return {}


def _row(row: Row, form: Format) -> dict[str, object]:
    told = {
        "at": utc(row.tick_s),
        "time_s": row.event.time_s,
        "source": row.event.source,
        "event": row.event.event,
        "detail": row.event.detail,
        "check": row.check,
    }
    if form is Format.JSON:
        return {**told, "values": row.values}
    return {**told, **{name: "" if value is None else value for name, value in row.values.items()}}
