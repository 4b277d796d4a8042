"""`penrose timeline` over files."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import pytest
from release.test_timeline import START, answer

from penrose_ray.clock import ManualClock
from penrose_ray.release.audit import AuditLog
from penrose_ray.release.ledger import Facts, Ledger, ledger_key
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """A day of a service: started, a release at 60 s that its counter shows, and one 30 s too early."""
    clock = ManualClock(START)
    log = AuditLog(tmp_path / "audit.jsonl", clock)
    log.note("started")
    ledger = Ledger(tmp_path / "task.ledger", TaskId(b"t" * 32), ledger_key(tmp_path / "key"), clock)
    clock.advance(60)
    ledger.append(Facts(kind="release", batch=7, sums=3, reports=900))
    clock.advance(60)
    ledger.append(Facts(kind="release", batch=8, sums=1, reports=300))
    rose = [(START + 5 * n, 0 + (n >= 12) + (n >= 31)) for n in range(40)]
    cpu = [(START + 5 * n, 2 * n) for n in range(40)]
    (tmp_path / "cost.json").write_bytes(
        answer(
            ({"__name__": "penrose_releases_total", "job": "penrose"}, rose),
            ({"__name__": "penrose_busy_seconds_total", "stage": "shard"}, cpu),
        )
    )
    return [tmp_path / name for name in ("cost.json", "task.ledger", "audit.jsonl")]


def test_json_has_events_in_order_with_their_cost_and_the_clock_that_is_off(
    call: Call, files: list[Path]
) -> None:
    code, out, err = call("timeline", *files, "--format", "json")
    rows = json.loads(out)
    assert code == 0
    assert {row["event"] for row in rows[:2]} == {"started", "head"}
    assert [row["event"] for row in rows[2:]] == ["release", "release"]
    assert [row["check"] for row in rows] == [
        "ok",
        "ok",
        "ok",
        "clock 30 s behind that of penrose_releases_total",
    ]
    assert rows[2]["values"]["penrose_busy_seconds_total{stage=shard}"] == pytest.approx(0.4)
    assert rows[2]["at"] == "1970-01-12 13:47:40"
    assert "1 of 4 events are not within 5 s" in err


def test_csv_and_table_have_a_column_a_series(call: Call, files: list[Path]) -> None:
    _, out, _ = call("timeline", *files, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert float(rows[2]["penrose_busy_seconds_total{stage=shard}"]) == pytest.approx(0.4)
    assert rows[3]["detail"] == "batch 8: 1 sums of 300 reports"
    _, out, _ = call("timeline", *files)
    assert "batch 7" in out
    assert "13:47:40" in out


def test_a_wider_tolerance_takes_both_clocks_for_one(call: Call, files: list[Path]) -> None:
    _, _, err = call("timeline", *files, "--tolerance", "40")
    assert not err


def test_bad_files_are_named(call: Call, tmp_path: Path, files: list[Path]) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    code, _, err = call("timeline", *files, tmp_path / "notes.txt")
    assert code == 70
    assert "notes.txt, line 1" in err
    code, _, err = call("timeline", tmp_path / "nowhere")
    assert code == 70
    assert "cannot be read" in err
    raw = files[1].read_bytes()
    files[1].write_bytes(raw.replace(b"signature", b"signaturf", 1))
    assert call("timeline", files[1])[0] == 65
