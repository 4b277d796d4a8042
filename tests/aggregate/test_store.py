from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

from penrose_ray.aggregate.arrival import Row, SumKey
from penrose_ray.aggregate.routing import bucket_of
from penrose_ray.aggregate.schema import SCHEMA_VERSION
from penrose_ray.aggregate.service import ShardService
from penrose_ray.aggregate.store import Journal
from penrose_ray.errors import JournalError, JournalFullError, JournalVersionError
from penrose_ray.types import BatchId, TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.clock import ManualClock
    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

TASK = TaskId(bytes(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "shard.journal"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path, TASK)
    yield journal
    journal.close()


def bins(*hit: int) -> list[int]:
    return [hit.count(bin_) for bin_ in range(128)]


def rows(reports: Reports, numbers: range) -> list[Row]:
    return [
        Row(arrival, bucket_of(arrival.report_id), SumKey(arrival.class_id, arrival.counter_set, BatchId(3)))
        for arrival in reports.some(numbers)
    ]


def test_rows_come_back_in_order_of_arrival(journal: Journal, reports: Reports) -> None:
    written = rows(reports, range(20))
    journal.record(written[:7])
    journal.record(written[7:])
    assert list(journal.rows()) == written


def test_every_commit_reaches_the_disk(journal: Journal) -> None:
    assert journal._db.execute("PRAGMA synchronous").fetchone() == (2,)
    assert journal._db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_change_is_all_or_nothing(journal: Journal, reports: Reports) -> None:
    written = rows(reports, range(4))
    journal.record(written[:1])

    def interrupted() -> None:
        with journal.change() as change:
            change.insert(written[1:])
            change.release(BatchId(3), 1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(journal.rows()) == written[:1]
    assert journal.released() == {}
    assert journal.known(row.arrival.report_id for row in written) == {written[0].arrival.report_id}


def test_a_change_that_deletes_needs_not_read_what_is_left(
    journal: Journal, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = rows(reports, range(6))
    journal.record(written)
    ids = [row.arrival.report_id for row in written]
    buckets = {written[0].bucket, written[1].bucket}
    gone = {row.arrival.report_id for row in written if row.bucket in buckets}

    def unreadable(*_: object) -> NoReturn:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("penrose_ray.aggregate.store.stored", unreadable)
    with journal.change() as change:
        change.delete_buckets(buckets)
        change.insert(written[:1])
    assert journal.known(ids) == set(ids) - gone | {ids[0]}


def test_many_ids_are_looked_up_at_once(journal: Journal, reports: Reports) -> None:
    written = rows(reports, range(1200))
    journal.record(written[:700])
    ids = [row.arrival.report_id for row in written]
    assert journal.known(ids) == set(ids[:700])


def test_a_release_is_noted_once(journal: Journal) -> None:
    for batch, released_s in ((5, 10.0), (4, 11.0), (5, 12.0)):
        with journal.change() as change:
            change.release(BatchId(batch), released_s)
    assert journal.released() == {4: 11.0, 5: 10.0}


def test_a_full_disk_is_named_and_writes_nothing(journal: Journal, reports: Reports) -> None:
    written = rows(reports, range(300))
    journal.record(written[:5])
    pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(JournalFullError, match="no room") as raised:
        journal.record(written[5:])
    assert raised.value.exit_code == 53
    assert list(journal.rows()) == written[:5]
    journal._db.execute("PRAGMA max_page_count = 1000000")
    journal.record(written[5:])
    assert list(journal.rows()) == written


def test_a_newer_journal_is_refused(path: Path) -> None:
    Journal(path, TASK).close()
    database = sqlite3.connect(path)
    database.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    database.close()
    with pytest.raises(JournalVersionError, match=f"version {SCHEMA_VERSION + 1}"):
        Journal(path, TASK)


def test_a_journal_of_another_task_is_refused(path: Path) -> None:
    Journal(path, TASK).close()
    with pytest.raises(JournalError, match="belongs to task 0000"):
        Journal(path, TaskId(b"\x01" * 32))


def test_a_file_that_is_no_journal_is_refused(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, but long enough to look like one" * 100)
    with pytest.raises(JournalError, match=str(path)):
        Journal(path, TASK)


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    path.parent.mkdir()
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE other (x)")
    database.close()
    with pytest.raises(JournalError, match="another program"):
        Journal(path, TASK)


def test_two_processes_cannot_share_a_journal(journal: Journal, path: Path) -> None:
    with pytest.raises(JournalError, match="in use"):
        Journal(path, TASK)
    assert journal.released() == {}


def test_a_changed_byte_is_noticed(path: Path, reports: Reports) -> None:
    written = rows(reports, range(3))
    journal = Journal(path, TASK)
    journal.record(written)
    journal.close()
    raw = bytearray(path.read_bytes())
    raw[raw.index(written[1].arrival.blob) + 100] ^= 1
    path.write_bytes(raw)
    journal = Journal(path, TASK)
    with pytest.raises(JournalError, match=written[1].arrival.report_id.hex()) as raised:
        list(journal.rows())
    assert str(path) in raised.value.remedy
    journal.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_journal_of_an_older_version_is_migrated(
    version: int, tmp_path: Path, task: Task, clock: ManualClock, reports: Reports
) -> None:
    # tests/aggregate/journals: reports 0 to 2 of class a and 3 of class b in a released batch, report 4 of
    # class a in the next one; each written by that version of the journal (version 3: all but 0 in blocks)
    copy = tmp_path / f"v{version}.journal"
    shutil.copy(Path(__file__).parent / "journals" / copy.name, copy)
    database = sqlite3.connect(copy)
    database.execute("UPDATE about SET value = ? WHERE name = 'task_id'", (task.task_id,))
    database.commit()  # a task of that time would have another id: its fields have changed
    database.close()
    with ShardService(copy, task, clock) as shard:
        (closed,), (open_,) = shard.closed_batches(), shard.batches()
        assert (closed.reports, closed.sums, open_.reports) == (4, 2, 1)
        opened = sorted(reports.opened(total) for total in shard.sums(closed.batch))
        assert opened == [bins(3), bins(0, 1, 2)]
        assert [reports.opened(total) for total in shard.sums(open_.batch)] == [bins(4)]
    database = sqlite3.connect(copy)
    assert database.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    query = "SELECT COUNT(*) FROM partial_histograms GROUP BY batch, snippet_hash ORDER BY COUNT(*)"
    assert database.execute(query).fetchall() == [(1,), (1,), (3,)]
    database.close()
