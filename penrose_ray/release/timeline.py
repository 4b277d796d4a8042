"""Audit events and metrics on one time axis, and whether the clocks behind them agree.

A metric that counts an event says when it happened by Prometheus' clock: between the last sample before the
counter rose and the first one after. An event whose own time is further than the tolerance from that interval
was written by a clock that is off.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from penrose_ray.release.audit import SCALED
from penrose_ray.telemetry import RELEASES
from penrose_ray.telemetry import SCALED as SCALED_SHARDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penrose_ray.release.audit import AuditEvent
    from penrose_ray.release.ledger import LedgerEntry
    from penrose_ray.release.samples import Series

TICK_S: Final = 5.0
"""Step of the axis, and the tolerance unless another is given."""
RELEASE: Final = "release"
WITNESSES: Final = {RELEASE: RELEASES.name, SCALED: SCALED_SHARDS.name}
"""Events that a metric counts, too."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, by the clock of the machine that wrote it down."""

    time_s: float
    source: str
    event: str
    detail: str = ""
    amount: int = 1


class Row(NamedTuple):
    """An event with the metrics of its moment."""

    tick_s: float
    event: Event
    check: str
    """`ok`, or what is wrong with its time."""
    values: dict[str, float | None]
    """By series; counters as rates per second."""


class _Rise(NamedTuple):
    after_s: float
    until_s: float

    def distance_s(self, time_s: float) -> float:
        """How far outside a time is: negative before, positive behind, 0 inside."""
        return min(time_s - self.after_s, 0.0) or max(time_s - self.until_s, 0.0)


def ledger_events(entries: Sequence[LedgerEntry], source: str) -> list[Event]:
    """What a checked ledger tells."""
    found = []
    for entry in entries:
        facts = entry.facts
        detail = {
            "release": f"batch {facts.batch}: {facts.sums} sums of {facts.reports} reports",
            "refused": f"batch {facts.batch}: {facts.reason}",
            "head": f"task {entry.task_id.hex()[:16]}",
        }[facts.kind]
        found.append(Event(float(entry.time_s), source, facts.kind, detail))
    return found


def audit_events(lines: Sequence[AuditEvent], source: str) -> list[Event]:
    """What an audit log tells."""
    return [Event(each.time_s, source, each.event, each.detail, each.amount) for each in lines]


def timeline(
    sources: Sequence[Sequence[Event]], series: Sequence[Series], tolerance_s: float = TICK_S
) -> list[Row]:
    """All events in the order of time, each beside the metrics of its moment.

    Args:
        sources: events of each file, in the file's order.
        series: what Prometheus answered.
        tolerance_s: how far apart an event and a sample may be.
    """
    axis = np.unique(np.concatenate([each.times_s for each in series] or [np.empty(0)]))
    faults = {id(event): fault for source in sources for event, fault in _backward(source, tolerance_s)}
    events = [event for source in sources for event in source]
    if len(axis):
        for event, fault in _unseen(events, series, axis, tolerance_s):
            faults.setdefault(id(event), fault)
    rows = []
    for event in sorted(events, key=lambda each: each.time_s):
        values = {each.label: each.at(event.time_s, tolerance_s) for each in series}
        rows.append(Row(event.time_s // TICK_S * TICK_S, event, faults.get(id(event), "ok"), values))
    return rows


def utc(time_s: float) -> str:
    """A time as text."""
    return dt.datetime.fromtimestamp(time_s, dt.UTC).strftime("%Y-%m-%d %H:%M:%S")


def _backward(source: Sequence[Event], tolerance_s: float) -> list[tuple[Event, str]]:
    found, latest_s = [], float("-inf")
    for event in source:
        if event.time_s < latest_s - tolerance_s:
            found.append((event, f"clock went back by {latest_s - event.time_s:.0f} s"))
        latest_s = max(latest_s, event.time_s)
    return found


def _unseen(
    events: Sequence[Event], series: Sequence[Series], axis: NDArray[np.float64], tolerance_s: float
) -> list[tuple[Event, str]]:
    """Events without a sample near them, and those whose metric rose at another time."""
    unseen = [each for each in events if np.abs(axis - each.time_s).min() > tolerance_s]
    found = [(each, f"no metric within {tolerance_s:g} s") for each in unseen]
    for kind, metric in WITNESSES.items():
        mine = [each for each in events if each.event == kind and each not in unseen]
        mine.sort(key=lambda each: each.time_s)
        counting = [each for each in series if each.name == metric]
        rises = [rise for each in counting for rise in _rises(each, axis)]
        if counting and not rises:
            found += [(each, f"{metric} did not rise") for each in mine]
        for event, offset_s in zip(mine, _offsets(mine, sorted(rises)), strict=False):
            if abs(offset_s) > tolerance_s:
                way = "behind" if offset_s < 0 else "ahead of"
                found.append((event, f"clock {abs(offset_s):.0f} s {way} that of {metric}"))
    return found


def _rises(series: Series, axis: NDArray[np.float64]) -> list[_Rise]:
    """Intervals in which a counter grew, one for each unit; a counter that appears later was 0 before."""
    times_s, grown = series.times_s.tolist(), series.grown().tolist()
    earlier = axis[axis < times_s[0]].tolist() if times_s else []
    if earlier:
        times_s.insert(0, earlier[-1])
        grown.insert(0, float(series.values[0]))
    return [
        _Rise(after_s, until_s)
        for after_s, until_s, more in zip(times_s, times_s[1:], grown, strict=False)
        for _ in range(round(more))
    ]


def _offsets(events: Sequence[Event], rises: Sequence[_Rise]) -> list[float]:
    """How far each event is from its rise: in order when their numbers agree, otherwise the nearest."""
    if not rises:
        return []
    if sum(each.amount for each in events) == len(rises):
        first = np.cumsum([0, *(each.amount for each in events)])[:-1]
        return [rises[place].distance_s(event.time_s) for place, event in zip(first, events, strict=True)]
    return [min((rise.distance_s(event.time_s) for rise in rises), key=abs) for event in events]
