"""Audit events and metrics on one time axis."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penrose_ray.clock import ManualClock
from penrose_ray.errors import TimelineError
from penrose_ray.release import audit
from penrose_ray.release.audit import AuditLog, read_audit
from penrose_ray.release.ledger import Facts, Ledger, check_chain, read_lines
from penrose_ray.release.samples import Series, read_series
from penrose_ray.release.timeline import Event, audit_events, ledger_events, timeline
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from pathlib import Path

START = 1_000_000.0
STEP = 5.0


def answer(*series: tuple[dict[str, str], list[tuple[float, object]]]) -> bytes:
    """What Prometheus says to a range query."""
    result = [{"metric": metric, "values": [[t, str(v)] for t, v in values]} for metric, values in series]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}).encode()


def sampled(name: str, *values: float, start: float = START, **labels: str) -> Series:
    """A series with a sample every 5 s."""
    points = [(start + STEP * place, value) for place, value in enumerate(values)]
    (made,) = read_series(answer(({"__name__": name, **labels}, points)), "test")
    return made


def release(time_s: float) -> Event:
    return Event(time_s, "ledger", "release")


def checks(events: list[Event], *series: Series, tolerance_s: float = STEP) -> list[str]:
    return [row.check for row in timeline([events], series, tolerance_s)]


STEADY = sampled("penrose_shards", *[2.0] * 25, state="working")
ROSE_AT_60 = sampled("penrose_releases_total", *[3.0] * 12, *[4.0] * 13)
"""It rose between 55 s and 60 s."""


@pytest.mark.parametrize("offset", [55.0, 57.5, 60.0, 50.0, 65.0])
def test_an_event_within_the_tolerance_of_its_metric_is_in_time(offset: float) -> None:
    assert checks([release(START + offset)], STEADY, ROSE_AT_60) == ["ok"]


@pytest.mark.parametrize(
    ("offset", "told"),
    [(49.0, "clock 6 s behind"), (66.0, "clock 6 s ahead of"), (15.0, "clock 40 s behind")],
)
def test_an_event_further_off_has_a_wrong_clock(offset: float, told: str) -> None:
    (check,) = checks([release(START + offset)], STEADY, ROSE_AT_60)
    assert check == f"{told} that of penrose_releases_total"


def test_the_tolerance_can_be_changed() -> None:
    assert checks([release(START + 66)], ROSE_AT_60, tolerance_s=6.0) == ["ok"]
    assert checks([release(START + 62)], ROSE_AT_60, tolerance_s=1.0) != ["ok"]


def test_events_are_matched_in_order_when_as_many_rose() -> None:
    """Both are 20 s late: the first is near to the second's rise, and still not taken for it."""
    rose = sampled("penrose_releases_total", 0, 0, 1, 1, 1, 1, 2, *[2.0] * 18)
    late = [release(START + 10 + 20), release(START + 30 + 20)]
    assert checks(late, rose) == ["clock 20 s ahead of that of penrose_releases_total"] * 2


def test_a_counter_that_appears_and_one_that_starts_again_have_risen() -> None:
    appeared = sampled("penrose_releases_total", *[1.0] * 10, start=START + 50)
    assert checks([release(START + 47)], STEADY, appeared) == ["ok"]
    assert checks([release(START + 20)], STEADY, appeared) != ["ok"]
    restarted = sampled("penrose_releases_total", *[9.0] * 10, *[1.0] * 10)
    assert checks([release(START + 50)], restarted) == ["ok"]


def test_two_shards_that_were_added_at_once_are_one_event() -> None:
    grown = sampled("penrose_scaled_shards_total", 0, 0, 2, 2, 2, 2, 3, *[3.0] * 10, direction="up")
    events = [Event(START + 8, "audit", "scaled", amount=2), Event(START + 28, "audit", "scaled")]
    assert checks(events, grown) == ["ok", "ok"]
    assert checks([events[0], Event(START + 60, "audit", "scaled")], grown)[1] != "ok"


def test_an_event_outside_of_the_metrics_and_one_without_a_rise_are_named() -> None:
    still = sampled("penrose_releases_total", *[4.0] * 20)
    assert checks([release(START + 30)], still) == ["penrose_releases_total did not rise"]
    assert checks([release(START - 30)], ROSE_AT_60) == ["no metric within 5 s"]


def test_without_metrics_only_a_clock_that_goes_back_is_seen() -> None:
    events = [Event(START + offset, "audit", "command") for offset in (0, 60, 57, 30)]
    assert [row.check for row in timeline([events], ())] == ["ok", "clock went back by 30 s", "ok", "ok"]


def test_rows_are_in_order_of_time_with_the_cost_of_their_moment() -> None:
    busy = sampled("penrose_busy_seconds_total", *[4.0 * place for place in range(25)], stage="shard")
    first = [Event(START + 31, "a", "one"), Event(START + 71, "a", "three")]
    rows = timeline([first, [Event(START + 42.4, "b", "two")]], [busy, STEADY])
    assert [row.event.event for row in rows] == ["one", "two", "three"]
    assert [row.tick_s - START for row in rows] == [30, 40, 70]
    assert rows[1].values == {
        "penrose_busy_seconds_total{stage=shard}": pytest.approx(0.8),
        "penrose_shards{state=working}": 2.0,
    }


def test_a_value_that_is_too_far_is_none() -> None:
    short = sampled("penrose_shards", 2.0, 2.0)
    (row,) = timeline([[Event(START + 30, "a", "late")]], [short, STEADY])
    assert row.values["penrose_shards"] is None


def test_ledgers_and_audit_logs_become_events(tmp_path: Path) -> None:
    clock = ManualClock(START)
    key = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
    ledger = Ledger(tmp_path / "ledger", TaskId(b"t" * 32), key, clock)
    clock.advance(60)
    ledger.append(Facts(kind="release", batch=7, sums=3, reports=900))
    ledger.append(Facts(kind="refused", batch=8, reason="the budget is spent"))
    entries = check_chain(read_lines((tmp_path / "ledger").read_bytes()))
    told = [(each.event, each.time_s - START, each.detail) for each in ledger_events(entries, "L")]
    assert told == [
        ("head", 0, f"task {(b't' * 8).hex()}"),
        ("release", 60, "batch 7: 3 sums of 900 reports"),
        ("refused", 60, "batch 8: the budget is spent"),
    ]

    log = AuditLog(tmp_path / "audit.jsonl", clock)
    log.note("started")
    log.note("scaled", "+2: busy 0.91", 2)
    raw = (tmp_path / "audit.jsonl").read_bytes()
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600
    first, second = audit_events(read_audit(raw + b'{"time_s": 1', "cut by a crash"), "A")
    assert (first.event, first.time_s) == ("started", START + 60)
    assert (second.detail, second.amount) == ("+2: busy 0.91", 2)


def test_an_event_that_a_crash_cut_short_does_not_spoil_the_next(tmp_path: Path) -> None:
    path, clock = tmp_path / "audit.jsonl", ManualClock(START)
    AuditLog(path, clock).note("started")
    path.write_bytes(path.read_bytes() + b'{"time_s": 1')
    AuditLog(path, clock).note("started again")
    assert [each.event for each in read_audit(path.read_bytes(), "A")] == ["started", "started again"]


def test_an_audit_log_that_has_grown_begins_anew_and_the_oldest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST_BYTES", 1)  # each event fills a log
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path, ManualClock(START))
    for number in range(audit.KEPT + 2):
        log.note("scaled", amount=number)
    kept = sorted(tmp_path.iterdir(), key=lambda each: int(each.suffix[1:]))
    assert [each.name for each in kept] == [f"audit.jsonl.{n}" for n in range(1, audit.KEPT + 1)]
    amounts = [event.amount for each in kept for event in read_audit(each.read_bytes(), each.name)]
    assert amounts == list(range(audit.KEPT + 1, 1, -1))


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"time_s": 1, "event": "x", "user": "me"}\n', "line 1"),
        (b'{"time_s": 1, "event": "x"}\nnonsense\n', "line 2"),
        (b'{"time_s": "noon", "event": "x"}\n', "time_s"),
    ],
)
def test_a_damaged_audit_log_is_named_with_its_line(raw: bytes, reason: str) -> None:
    with pytest.raises(TimelineError, match=re.escape(reason)):
        read_audit(raw, "audit.jsonl")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"status": "error", "errorType": "bad_data"}', "status"),
        (b'{"status": "success", "data": {"resultType": "vector", "result": []}}', "vector"),
        (answer(({"__name__": "x"}, [(1.0, "one")])), "one"),
        (answer(({"__name__": "x"}, [(2.0, 1), (1.0, 2)])), "the times of x do not ascend"),
        (b"", "no answer"),
    ],
)
def test_what_is_no_range_of_prometheus_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(TimelineError, match=reason):
        read_series(raw, "cost.json")


def test_samples_that_are_no_numbers_are_left_out() -> None:
    (series,) = read_series(answer(({"__name__": "x", "job": "j"}, [(1, 1), (2, "NaN"), (3, "+Inf")])), "f")
    assert (series.label, series.values.tolist()) == ("x", [1.0])
