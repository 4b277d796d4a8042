from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penrose_ray.aggregate.archive import Archive
from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.service import ShardService
from penrose_ray.aggregate.upkeep import CHECKPOINT_REPORTS
from penrose_ray.errors import JournalError, JournalFullError
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.clock import ManualClock
    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

HOUR_S = 3600
DAY_S = 86_400


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shard.journal"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "cold"))


@pytest.fixture
def shard(path: Path, task: Task, clock: ManualClock, archive: Archive) -> Iterator[ShardService]:
    with ShardService(path, task, clock, archive=archive, validate_states=True) as service:
        yield service


def released(shard: ShardService, reports: Reports) -> int:
    """A batch that is handed over, with reports 0 to 3 in two classes."""
    shard.accept([*reports.some(range(3)), reports.one(3, name="b")])
    (batch,) = shard.batches()
    shard.close_batch(batch.batch)
    shard.upkeep.note_handed_over([batch.batch])
    return batch.batch


def test_stored_sums_spare_adding_up(path: Path, task: Task, clock: ManualClock, reports: Reports) -> None:
    shard = ShardService(path, task, clock)
    shard.accept(reports.some(range(4)))
    assert shard._core.journal.folded() == 0
    shard.upkeep.checkpoint()
    assert shard._core.journal.folded() == 4
    shard.accept([reports.one(4)])
    shard.close()
    with ShardService(path, task, clock) as shard:
        assert shard._core.journal.folded() == 5
        assert len(shard._core.sums) == 0
        (batch,) = shard.batches()
        assert reports.hits(shard.sums(batch.batch)) == Counter(range(5))


def test_sums_are_stored_after_many_reports_or_a_minute(
    shard: ShardService, reports: Reports, clock: ManualClock
) -> None:
    shard.accept(reports.some(range(2)))
    shard.upkeep.after(CHECKPOINT_REPORTS - 3)
    assert shard._core.journal.folded() == 0
    shard.upkeep.after(1)
    assert shard._core.journal.folded() == 2
    shard.accept(reports.some(range(2, 4)))
    shard.upkeep.tick()
    assert shard._core.journal.folded() == 2
    clock.advance(60)
    shard.upkeep.tick()
    assert shard._core.journal.folded() == 4


def test_a_disk_that_fills_up_stops_intake_and_nothing_else(shard: ShardService, reports: Reports) -> None:
    shard.accept([reports.one(0)])
    journal = shard._core.journal
    pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalFullError):
        shard.accept(reports.some(range(1, 60)))
    (batch,) = shard.batches()
    assert sum(reports.hits(shard.sums(batch.batch)).values()) == batch.reports
    journal._db.execute("PRAGMA max_page_count = 1000000")
    shard.accept(reports.some(range(60)))
    assert reports.hits(shard.sums(batch.batch)) == Counter(range(60))


def test_under_the_disk_mark_new_reports_wait_and_known_ones_do_not(
    shard: ShardService, reports: Reports
) -> None:
    shard.accept([reports.one(0)])
    shard.upkeep._disk_mark_bytes = 1000
    shard.upkeep.free_bytes = lambda: 999
    shard.upkeep.tick()
    answers = shard.accept(reports.some(range(2)))
    assert [answer.outcome for answer in answers] == [Outcome.KNOWN, Outcome.REFUSED_BUSY]
    assert answers[1].outcome.send_again
    assert answers[1].detail == "the disk has 999 bytes left, 1000 are kept"
    shard.upkeep.free_bytes = lambda: 1000
    shard.upkeep.tick()
    assert shard.accept([reports.one(1)])[0].outcome is Outcome.ACCEPTED


def test_rows_go_48_hours_after_release_and_sums_stay(
    shard: ShardService, path: Path, reports: Reports, clock: ManualClock
) -> None:
    batch = released(shard, reports)
    sums = shard.sums(batch)
    trace = reports.one(0)
    assert trace.signature in path.read_bytes() + path.with_name(f"{path.name}-wal").read_bytes()
    clock.advance(48 * HOUR_S - 1)
    assert shard.upkeep.purge() == 0
    assert shard.known([trace.report_id])
    clock.advance(1)
    assert shard.upkeep.purge() == 1
    left = path.read_bytes() + path.with_name(f"{path.name}-wal").read_bytes()
    assert trace.signature not in left
    assert trace.report_id not in left
    assert shard.sums(batch) == sums
    assert shard.accept([trace])[0].outcome is Outcome.REFUSED_TOO_LATE


def test_what_somebody_read_meanwhile_is_gone_an_hour_later(
    shard: ShardService, path: Path, reports: Reports, clock: ManualClock
) -> None:
    """The operator's query on partial_histograms, say."""
    released(shard, reports)
    wal, trace = path.with_name(f"{path.name}-wal"), reports.one(0)
    clock.advance(48 * HOUR_S)
    with contextlib.closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM partial_histograms").fetchone() == (4,)
        shard.upkeep.tick()
        assert not shard.known([trace.report_id])
        assert trace.signature in path.read_bytes() + wal.read_bytes()
    clock.advance(HOUR_S)
    shard.upkeep.tick()
    assert trace.signature not in path.read_bytes() + wal.read_bytes()


def test_what_a_killed_purge_had_deleted_is_gone_after_the_restart(
    path: Path, task: Task, reports: Reports, clock: ManualClock, tmp_path: Path
) -> None:
    shard = ShardService(path, task, clock)
    batch = released(shard, reports)
    shard.accept(reports.some(range(10, 20)))
    clock.advance(48 * HOUR_S)
    shard.upkeep._delete_rows(BatchId(batch))
    killed = tmp_path / "killed"
    for end in ("", "-wal"):  # what a killed process leaves
        shutil.copy(path.with_name(path.name + end), killed.with_name(killed.name + end))
    shard.close()
    with ShardService(killed, task, clock) as again:
        again.upkeep.tick()
        left = killed.read_bytes() + killed.with_name("killed-wal").read_bytes()
        assert reports.one(0).report_id not in left
        assert reports.hits(again.sums(batch)) == Counter(range(4))


def test_rows_and_sums_of_a_batch_that_is_not_handed_over_stay(
    path: Path, task: Task, clock: ManualClock, reports: Reports
) -> None:
    with ShardService(path, task, clock) as shard:
        batch = released(shard, reports)
        sums = shard.sums(batch)
    clock.advance(100 * DAY_S)
    with ShardService(path, task, clock) as shard:
        assert shard.upkeep.purge() == 0
        assert [each.ids for each in shard.sums(batch)] == [each.ids for each in sums]
        shard.upkeep.note_handed_over([batch])
        assert shard.upkeep.purge() == 2, "its rows, and its sums"


def test_old_rows_go_at_the_first_tick_after_a_restart_and_then_every_hour(
    path: Path, task: Task, clock: ManualClock, reports: Reports
) -> None:
    with ShardService(path, task, clock) as shard:
        batch = released(shard, reports)
    clock.advance(48 * HOUR_S - 10)
    with ShardService(path, task, clock) as shard:
        shard.upkeep.note_handed_over([batch])
        shard.upkeep.tick()
        clock.advance(10)
        shard.upkeep.tick()
        assert shard.known([reports.one(0).report_id])
        clock.advance(HOUR_S - 10)
        shard.upkeep.tick()
        assert not shard.known([reports.one(0).report_id])


def test_a_purge_in_several_steps_leaves_other_batches_alone(
    path: Path, task: Task, clock: ManualClock, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.aggregate.upkeep._DELETE", 2)
    with ShardService(path, task, clock) as shard:
        batch = released(shard, reports)
        shard.accept(reports.some(range(8, 11)))
        clock.advance(48 * HOUR_S)
        shard.upkeep.purge()
    with ShardService(path, task, clock) as shard:
        assert reports.hits(shard.sums(batch)) == Counter(range(4))
        assert reports.hits(shard.sums(batch + 1)) == Counter(range(8, 11))
        assert [row.arrival.report_id for row in shard._core.journal.rows()] == [
            reports.one(number).report_id for number in range(8, 11)
        ]


def index_reads_of_a_purge(shard: ShardService, reports: Reports, clock: ManualClock, commits: int) -> int:
    for number in range(commits):
        shard.accept([reports.one(number, hour=int(clock.now_s() // HOUR_S))])
    (batch,) = shard.batches()
    shard.close_batch(batch.batch)
    shard.upkeep.note_handed_over([batch.batch])
    clock.advance(48 * HOUR_S)
    statements: list[str] = []
    shard._core.journal._db.set_trace_callback(statements.append)
    shard.upkeep.purge()
    shard._core.journal._db.set_trace_callback(None)
    assert shard.known([reports.one(number).report_id for number in range(commits)]) == set()
    return sum("SELECT first, entries" in each for each in statements)


def test_a_purge_reads_the_index_once_however_many_steps_it_takes(
    tmp_path: Path, task: Task, clock: ManualClock, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.aggregate.upkeep._DELETE", 2)
    reads = []
    for commits in (20, 40):
        with ShardService(tmp_path / str(commits), task, clock) as shard:
            reads.append(index_reads_of_a_purge(shard, reports, clock, commits))
    assert reads[1] <= 2 * reads[0]


def test_reports_are_taken_while_a_purge_goes_on(
    shard: ShardService, reports: Reports, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.aggregate.upkeep._DELETE", 2)
    released(shard, reports)
    clock.advance(48 * HOUR_S)
    outcomes: list[Outcome] = []

    def another() -> None:
        number = 10 + len(outcomes)
        (answer,) = shard.accept([reports.one(number, hour=int(clock.now_s() // HOUR_S))])
        outcomes.append(answer.outcome)

    def give_way() -> None:
        thread = threading.Thread(target=another)
        thread.start()
        thread.join(timeout=30)

    shard.upkeep.give_way = give_way
    shard.upkeep.tick()
    assert outcomes == [Outcome.ACCEPTED] * 3


def test_cold_sums_move_to_the_archive_and_read_the_same(
    shard: ShardService, path: Path, task: Task, reports: Reports, clock: ManualClock, archive: Archive
) -> None:
    batch = released(shard, reports)
    sums = shard.sums(batch)
    clock.advance(48 * HOUR_S)
    shard.upkeep.purge()
    assert shard.upkeep.compact() == [batch]
    assert shard._core.journal.sum_weights() == {}
    assert shard.sums(batch) == sums
    shard.close()
    with ShardService(path, task, clock, archive=archive) as reopened:
        assert reopened.sums(batch) == sums
        assert reopened.upkeep.compact() == []


def test_an_archive_file_is_durable_with_every_name_that_leads_to_it(
    shard: ShardService, reports: Reports, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal forgets the sums then: no power cut may take their folder away."""
    synced: set[Path] = set()
    fsync = os.fsync

    def noting(descriptor: int) -> None:
        synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())
        fsync(descriptor)

    released(shard, reports)
    clock.advance(48 * HOUR_S)
    shard.upkeep.purge()
    monkeypatch.setattr(os, "fsync", noting)
    shard.upkeep.compact()
    (file,) = (tmp_path / "cold").rglob("*.parquet")
    assert synced == {file, *file.parents[:3]}
    assert tmp_path / "cold" in synced


def test_sums_in_use_do_not_move_to_the_archive(
    shard: ShardService, reports: Reports, clock: ManualClock
) -> None:
    batch = released(shard, reports)
    for _ in range(50):
        clock.advance(HOUR_S)
        shard.sums(batch)
    shard.upkeep.purge()
    assert shard.upkeep.compact() == []


def test_archived_sums_go_after_90_days(
    shard: ShardService, reports: Reports, clock: ManualClock, tmp_path: Path
) -> None:
    batch = released(shard, reports)
    clock.advance(48 * HOUR_S)
    shard.upkeep.purge()
    shard.upkeep.compact()
    assert list((tmp_path / "cold").rglob("*.parquet"))
    clock.advance(88 * DAY_S - 1)
    assert shard.upkeep.purge() == 0
    clock.advance(1)
    assert shard.upkeep.purge() == 1
    assert not list((tmp_path / "cold").rglob("*.parquet"))
    assert shard.sums(batch) == []
    assert shard.counts().released_batches == 1
    assert shard._core.journal.released() == {}


def test_an_archived_batch_without_its_archive_is_named(
    path: Path, task: Task, clock: ManualClock, reports: Reports, archive: Archive
) -> None:
    with ShardService(path, task, clock, archive=archive) as shard:
        batch = released(shard, reports)
        clock.advance(48 * HOUR_S)
        shard.upkeep.purge()
        shard.upkeep.compact()
    with (
        ShardService(path, task, clock) as shard,
        pytest.raises(JournalError, match=f"Batch {batch} .* needs an archive"),
    ):
        shard.sums(batch)


def test_a_damaged_archive_file_is_named(
    shard: ShardService, reports: Reports, clock: ManualClock, tmp_path: Path
) -> None:
    batch = released(shard, reports)
    clock.advance(48 * HOUR_S)
    shard.upkeep.purge()
    shard.upkeep.compact()
    (file,) = (tmp_path / "cold").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(JournalError, match=str(file)):
        shard.sums(batch)


def test_memory_holds_hot_sums_only(shard: ShardService, reports: Reports, clock: ManualClock) -> None:
    shard.accept(reports.some(range(3)))
    clock.advance(6 * HOUR_S)
    shard.accept([reports.one(3, name="b")])
    shard.upkeep.checkpoint()
    assert len(shard._core.sums) == 1
    shard.accept([reports.one(4)])
    (batch,) = shard.batches()
    assert reports.hits(shard.sums(batch.batch)) == Counter(range(5))


def test_an_archive_may_be_any_file_system_of_fsspec(
    path: Path, task: Task, clock: ManualClock, reports: Reports
) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with ShardService(path, task, clock, archive=Archive("fsspec+memory://penrose/cold")) as shard:
        batch = released(shard, reports)
        sums = shard.sums(batch)
        clock.advance(48 * HOUR_S)
        shard.upkeep.purge()
        assert shard.upkeep.compact() == [batch]
        assert shard.sums(batch) == sums
