"""Threats that have no test elsewhere, and that every test which docs/threats.md names exists."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.aggregate.arrival import Arrival
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.keyfile import read_keys, write_keys
from penrose_ray.crypto.packing import Slots, pack, unpack
from penrose_ray.errors import KeyFormatError
from penrose_ray.release.handover import build
from penrose_ray.types import ClassId, ReportId

if TYPE_CHECKING:
    from release.conftest import Parts

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threats.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)
THREATS = (
    "Curious aggregation service",
    "Curious design server",
    "single key",
    "threshold key",
    "Hostile client",
    "Network observer",
    "Stolen journal",
    "Stolen disk",
    "Issuer and service",
    "Differencing",
    "Rare class",
    "Cover traffic",
)


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).exists()


@pytest.mark.parametrize("threat", THREATS)
def test_every_threat_has_a_row_with_a_test(threat: str) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| **") and threat in line]
    assert rows
    assert all("`tests/" in row for row in rows)


def report(parts: Parts, task: Task, count: int) -> bytes:
    """One report of `count` samples in bin 5."""
    bins = np.zeros(128, np.int64)
    bins[5] = count
    slots = Slots(bins, task.samples_per_histogram - count, 1)
    return parts.encryptor.encrypt(pack(slots, task.profile()))


def test_what_a_service_stores_holds_no_plaintext_and_no_key(
    tmp_path: Path, task: Task, parts: Parts, design_keys: DesignKeys
) -> None:
    """Two reports of unequal content leave journals that differ in ciphertexts of one length only."""
    rows = []
    for number, count in enumerate((1, 99)):
        path = tmp_path / f"shard-{number}.sqlite"
        with ShardService(path, task, ManualClock(1e9)) as shard:
            arrival = Arrival(
                report_id=ReportId(b"r" * 32),
                class_id=ClassId(b"c" * 16),
                snippet_hash=b"h" * 32,
                counter_set=0,
                created_hour=int(1e9 // 3600),
                signature=b"s" * 400,
                blob=report(parts, task, count),
            )
            assert shard.accept([arrival])[0].outcome.acknowledged
        db = sqlite3.connect(path)
        (row,) = db.execute("SELECT * FROM single_reports").fetchall()
        names = [each[1] for each in db.execute("PRAGMA table_info(single_reports)")]
        db.close()
        rows.append(dict(zip(names, row, strict=True)))
        raw = path.read_bytes()
        for factor in design_keys.paillier.factors():
            for order in ("big", "little"):
                assert factor.to_bytes(192, order) not in raw  # type: ignore[arg-type]
    differing = {name for name in rows[0] if rows[0][name] != rows[1][name]}
    assert differing <= {"blob", "crc", "arrival"}
    assert len(rows[0]["blob"]) == len(rows[1]["blob"])


def test_with_a_single_key_service_and_design_server_open_one_report(
    task: Task, parts: Parts, design_keys: DesignKeys
) -> None:
    """Said plainly in SECURITY.md: against these two together only a threshold key helps."""
    opened = design_keys.paillier.decrypt(report(parts, task, 42), task.profile())
    assert unpack(opened, task.profile()).bins[5] == 42
    assert "with a single key nothing stops them" in (ROOT / "SECURITY.md").read_text()


def test_a_stolen_key_file_does_not_open_without_its_passphrase(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    path = tmp_path / "ds.key"
    write_keys(path, design_keys, passphrase=b"right")
    raw = path.read_bytes()
    for factor in design_keys.paillier.factors():
        assert factor.to_bytes(192, "big") not in raw
    for passphrase in (None, b"wrong"):
        with pytest.raises(KeyFormatError):
            read_keys(path, passphrase=passphrase)


def test_a_rare_class_leaves_no_trace_in_a_handover(task: Task, parts: Parts) -> None:
    rare = parts.one("rare", 4)
    handover = build(task, [parts.one("common", 6), rare], lambda _: "GPU", parts.encryptor)
    raw = handover.encode()
    assert rare.class_id not in raw
    assert not any(each in raw for each in rare.ids)
    assert (handover.withheld.sums, handover.withheld.reports) == (1, 4)
