"""Journals that lost bytes: a torn end is cut off, a damaged page is named and the rest is saved."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sqlite3
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.block import Block
from penrose_ray.aggregate.salvage import salvage
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.errors import JournalError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

NOW_S = 1_750_000_000.0
PAGE = 16_384


def opened(path: Path, task: Task) -> ShardService:
    return ShardService(path, task, ManualClock(NOW_S), validate_states=True)


def crash(shard: ShardService) -> dict[str, bytes]:
    """What the files of a killed process hold."""
    path = shard._core.journal.path
    files = {suffix: path.with_name(path.name + suffix).read_bytes() for suffix in ("", "-wal")}
    shard.close()
    return files


def hits(shard: ShardService, reports: Reports) -> Counter[int]:
    counts = [*shard.batches(), *shard.closed_batches()]
    return reports.hits(total for count in counts for total in shard.sums(count.batch))


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory, task: Task, reports: Reports) -> dict[str, bytes]:
    """Files of a shard that was killed after eight commits of one report each."""
    shard = opened(tmp_path_factory.mktemp("torn") / "shard", task)
    for number in range(8):
        shard.accept([reports.one(number)])
    return crash(shard)


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a_torn_end_leaves_whole_commits(
    data: st.DataObject,
    tmp_path_factory: pytest.TempPathFactory,
    task: Task,
    reports: Reports,
    torn: dict[str, bytes],
) -> None:
    wal = torn["-wal"]
    length = data.draw(st.integers(0, len(wal)))
    garbage = data.draw(st.sampled_from([b"", b"\x00" * 5000, os.urandom(5000)]))
    path = tmp_path_factory.mktemp("torn") / "shard"
    path.write_bytes(torn[""])
    path.with_name("shard-wal").write_bytes(wal[:length] + garbage)
    with opened(path, task) as shard:
        arrivals = reports.some(range(8))
        known = shard.known([arrival.report_id for arrival in arrivals])
        count = len(known)
        assert known == {arrival.report_id for arrival in arrivals[:count]}
        assert hits(shard, reports) == Counter(range(count))
        assert [answer.outcome for answer in shard.accept(arrivals)].count(Outcome.ACCEPTED) == 8 - count
        assert hits(shard, reports) == Counter(range(8))


def many(path: Path, task: Task, reports: Reports) -> dict[str, bytes]:
    """Files of a shard with 120 reports whose sums are stored, killed."""
    shard = opened(path, task)
    shard.accept(reports.some(range(120)))
    shard.upkeep.checkpoint()
    shard._core.journal.shrink()
    return crash(shard)


def damage(path: Path, files: dict[str, bytes], page: int) -> None:
    raw = bytearray(files[""])
    raw[page * PAGE : (page + 1) * PAGE] = os.urandom(PAGE)
    path.write_bytes(raw)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def test_every_damaged_page_is_detected_and_the_rest_is_saved(
    tmp_path: Path, task: Task, reports: Reports
) -> None:
    path = tmp_path / "shard"
    files = many(path, task, reports)
    pages = len(files[""]) // PAGE
    assert pages > 15
    losses = []
    for page in range(pages):
        damage(path, files, page)
        with pytest.raises(JournalError, match=re.escape(str(path))) as raised:
            opened(path, task)
        assert raised.value.remedy.endswith(f"python -m penrose_ray.aggregate.salvage {path}.")
        with pytest.raises(JournalError, match=re.escape(str(path))):
            opened(path, task)
        result = salvage(path, task.task_id)
        losses.append(120 - result.kept)
        with opened(path, task) as shard:
            left = hits(shard, reports)
            assert sum(left.values()) == result.kept
            assert set(left.values()) == {1}
            lost = {reports.one(number).report_id.hex() for number in range(120) if number not in left}
            assert lost == set(result.lost)
            shard.accept(reports.some(range(120)))
            assert hits(shard, reports) == Counter(range(120))
    assert max(losses) <= 9  # what a page of 16 KiB holds
    assert sum(losses) == 120


def test_a_tree_without_order_ends_in_an_error_and_no_loop(
    tmp_path: Path, task: Task, reports: Reports
) -> None:
    """A journal that was closed is not verified when it is opened; SQLite trusts the order on a page."""
    path = tmp_path / "shard"
    with opened(path, task) as shard:
        for number in range(6):
            shard.accept([reports.one(number)])
        for number in range(6, 12):
            shard.accept_block(Block.of([reports.one(number)]))
    with contextlib.closing(sqlite3.connect(path)) as database:
        roots = dict(database.execute("SELECT name, rootpage FROM sqlite_schema WHERE type = 'table'"))
    whole = path.read_bytes()
    told: Counter[str] = Counter()
    for table in ("single_reports", "report_blocks", "report_index"):
        start = (roots[table] - 1) * PAGE
        cells = int.from_bytes(whole[start + 3 : start + 5], "big")
        pointers = [slice(at, at + 2) for at in range(start + 8, start + 8 + 2 * cells, 2)]
        for one, other in itertools.combinations(pointers, 2):
            raw = bytearray(whole)
            raw[one], raw[other] = raw[other], raw[one]
            path.write_bytes(raw)
            try:
                with opened(path, task) as shard:
                    list(shard._core.journal.rows())
            except JournalError as error:
                told[table] += "order" in error.message
    assert set(+told) == {"single_reports", "report_blocks", "report_index"}


def test_a_changed_bit_in_a_ciphertext_is_named(tmp_path: Path, task: Task, reports: Reports) -> None:
    path = tmp_path / "shard"
    raw = bytearray(many(path, task, reports)[""])
    raw[raw.index(reports.blob(77)) + 700] ^= 4
    path.write_bytes(raw)
    with pytest.raises(JournalError, match=reports.one(77).report_id.hex()):
        opened(path, task)
    program = [sys.executable, "-m", "penrose_ray.aggregate.salvage", str(path)]
    result = subprocess.run(program, capture_output=True, text=True, check=True, timeout=300)
    assert result.stdout == (
        f"119 reports saved in {path}, 1 lost; before: {path}.damaged\n"
        f"lost: {reports.one(77).report_id.hex()}\n"
    )
    with opened(path, task) as shard:
        assert hits(shard, reports) == Counter(set(range(120)) - {77})
    assert path.with_name("shard.damaged").read_bytes() == raw


def test_salvage_of_something_else_fails_with_its_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "shard"
    path.write_bytes(b"no journal" * 1000)
    program = [sys.executable, "-m", "penrose_ray.aggregate.salvage", str(path)]
    result = subprocess.run(program, capture_output=True, text=True, check=False, timeout=300)
    assert result.returncode == 50
    assert re.search(r"The task of .*shard cannot be read", result.stderr)
    assert path.exists()


def test_a_salvage_that_was_interrupted_is_done_again(tmp_path: Path, task: Task, reports: Reports) -> None:
    path = tmp_path / "shard"
    shard = opened(path, task)
    shard.accept(reports.some(range(5)))
    files = crash(shard)
    path.write_bytes(files[""])
    path.with_name("shard-wal").unlink(missing_ok=True)
    path.with_name("shard.damaged-wal").write_bytes(files["-wal"])  # as far as it came
    assert salvage(path).kept == 5
    with opened(path, task) as shard:
        assert hits(shard, reports) == Counter(range(5))
    assert salvage(path).damaged == tmp_path / "shard.damaged-2"


def test_a_journal_in_use_is_not_salvaged(tmp_path: Path, task: Task, reports: Reports) -> None:
    path = tmp_path / "a#1 %41?.sqlite"  # SQLite opens it by an URI
    with opened(path, task) as shard:
        shard.accept(reports.some(range(3)))
        with pytest.raises(JournalError, match="in use by another process"):
            salvage(path)
        shard.accept(reports.some(range(3, 5)))
    assert salvage(path).kept == 5
    with opened(path, task) as shard:
        assert hits(shard, reports) == Counter(range(5))
    with pytest.raises(JournalError, match="no journal"):
        salvage(tmp_path / "nowhere" / "shard")


def test_sums_without_rows_survive_a_salvage(tmp_path: Path, task: Task, reports: Reports) -> None:
    path, clock = tmp_path / "shard", ManualClock(NOW_S)
    shard = ShardService(path, task, clock)
    shard.accept(reports.some(range(3)))
    (batch,) = shard.batches()
    shard.close_batch(batch.batch)
    shard.upkeep.note_handed_over([batch.batch])
    clock.advance(48 * 3600)
    shard.upkeep.purge()
    sums = shard.sums(batch.batch)
    shard.close()
    assert salvage(path).lost == ()
    with ShardService(path, task, clock) as shard:
        assert shard.sums(batch.batch) == sums
        assert shard.closed_batches()[0].reports == 3
