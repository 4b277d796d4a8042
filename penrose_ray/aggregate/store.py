"""The journal of one shard: a SQLite file in WAL mode, the only truth about what was acknowledged.

Reports lie in order of arrival (rowid), the index on their ids is apart: a random clustered key is three
times slower. The file is bound to one task and used by one process at a time.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from penrose_ray.aggregate.arrival import Arrival, Row
from penrose_ray.errors import JournalError, JournalFullError, JournalVersionError
from penrose_ray.types import BatchId, BucketId, ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from penrose_ray.types import TaskId

SCHEMA_VERSION: Final = 1
_APPLICATION_ID: Final = 0x504E5231  # "PNR1"
_PAGE_BYTES: Final = 16_384
_LOOK_UP: Final = 500

_SCHEMA: Final = """
CREATE TABLE partial_histograms (
    arrival INTEGER PRIMARY KEY,
    report_id BLOB NOT NULL,
    bucket INTEGER NOT NULL,
    class_id BLOB NOT NULL,
    snippet_hash TEXT NOT NULL,
    counter_set INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    created_hour INTEGER NOT NULL,
    signature BLOB NOT NULL,
    blob BLOB NOT NULL,
    crc INTEGER NOT NULL
);
CREATE UNIQUE INDEX partial_histograms_by_id ON partial_histograms (report_id);
CREATE TABLE released_batches (batch INTEGER PRIMARY KEY, released_s REAL NOT NULL);
CREATE TABLE about (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""

_INSERT: Final = "INSERT INTO partial_histograms VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT: Final = """
SELECT arrival, report_id, bucket, class_id, snippet_hash, counter_set, batch, created_hour, signature, blob,
    crc
FROM partial_histograms
"""


class Journal:
    """Reports and released batches of one shard.

    `synchronous` FULL survives a power cut, NORMAL a crash of the process only.

    Raises:
        JournalVersionError: the file was written by a newer version.
        JournalError: the file is damaged, of another task, in use, or cannot be written.
    """

    def __init__(
        self, path: Path, task_id: TaskId, *, synchronous: Literal["FULL", "NORMAL"] = "FULL"
    ) -> None:
        self.path = path
        self._lock = _lock(path)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            with self._typed_errors():
                self._open(task_id, synchronous)
        except BaseException:
            self.close()
            raise

    def _open(self, task_id: TaskId, synchronous: str) -> None:
        db = self._db
        fresh = db.execute("PRAGMA schema_version").fetchone()[0] == 0
        if fresh:
            db.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        else:
            self._check_version()
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {synchronous}")
        db.execute("PRAGMA cache_size = -65536")
        if fresh:
            with self._transaction():
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute("INSERT INTO about VALUES ('task_id', ?)", (task_id,))
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        found = db.execute("SELECT value FROM about WHERE name = 'task_id'").fetchone()[0]
        if found != task_id:
            raise JournalError(
                f"The journal {self.path} belongs to task {found.hex()}, not {task_id.hex()}.",
                remedy="Give each task a state directory of its own.",
            )

    def _check_version(self) -> None:
        kind = self._db.execute("PRAGMA application_id").fetchone()[0]
        if kind != _APPLICATION_ID:
            raise JournalError(
                f"{self.path} is a database of another program.",
                remedy="Point the state directory elsewhere.",
            )
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise JournalVersionError(
                f"The journal {self.path} has schema version {version}, this program knows {SCHEMA_VERSION}.",
                remedy="Use the version of penrose-ray that wrote it, or a newer one.",
            )

    def known(self, ids: Iterable[ReportId]) -> set[ReportId]:
        """Which of these ids are in the journal."""
        wanted = list(ids)
        found: set[ReportId] = set()
        with self._typed_errors():
            for start in range(0, len(wanted), _LOOK_UP):
                part = wanted[start : start + _LOOK_UP]
                marks = ",".join("?" * len(part))
                sql = f"SELECT report_id FROM partial_histograms WHERE report_id IN ({marks})"
                found.update(ReportId(row[0]) for row in self._db.execute(sql, part))
        return found

    def record(self, rows: Sequence[Row]) -> None:
        """Commit these rows, all or none.

        Raises:
            JournalFullError: there is no room on the disk.
            JournalError: an id is already there, or the file is damaged.
        """
        with self._typed_errors(), self._transaction():
            self._db.executemany(_INSERT, map(_values, rows))

    def release(self, batch: BatchId, now_s: float) -> None:
        """Note that a batch is released; once, later calls change nothing."""
        with self._typed_errors(), self._transaction():
            self._db.execute("INSERT OR IGNORE INTO released_batches VALUES (?, ?)", (batch, now_s))

    def released(self) -> list[BatchId]:
        """Released batches, ascending."""
        with self._typed_errors():
            sql = "SELECT batch FROM released_batches ORDER BY batch"
            return [BatchId(row[0]) for row in self._db.execute(sql)]

    def rows(self) -> Iterator[Row]:
        """All reports in order of arrival.

        Raises:
            JournalError: a page is damaged.
        """
        with self._typed_errors():
            for values in self._db.execute(f"{_SELECT} ORDER BY arrival"):
                row = _row(values)
                if _crc(row) != values[-1]:
                    raise _damaged(self.path, f"report {row.arrival.report_id.hex()} is not what was written")
                yield row

    def close(self) -> None:
        """Close the file and give it free; the last close folds the WAL into it."""
        if hasattr(self, "_db"):
            self._db.close()
        os.close(self._lock)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    @contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise_typed(self.path, error)


def raise_typed(path: Path, error: sqlite3.Error) -> NoReturn:
    """Raise what a SQLite error means for a journal.

    Raises:
        JournalFullError: the disk is full.
        JournalError: anything else.
    """
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_FULL":
        raise JournalFullError(
            f"There is no room left for the journal {path}; nothing of this commit was written.",
            remedy="Free space on that disk; intake goes on by itself.",
        ) from error
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        raise _damaged(path, str(error)) from error
    raise JournalError(
        f"The journal {path} cannot be used: {error}.", remedy="Check the disk and the file's permissions."
    ) from error


def _damaged(path: Path, reason: str) -> JournalError:
    return JournalError(
        f"The journal {path} is damaged: {reason}.",
        remedy=f"Keep a copy, then save what is whole: python -m penrose_ray.aggregate.salvage {path}.",
    )


def _lock(path: Path) -> int:
    """Hold `path`.lock as long as this process lives."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise JournalError(
            f"The journal {path} cannot be opened: {error}.",
            remedy="Check the state directory's permissions.",
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(handle)
        raise JournalError(
            f"The journal {path} is in use by another process.", remedy="Stop that shard first."
        ) from error
    return handle


def _values(row: Row) -> tuple[object, ...]:
    arrival = row.arrival
    return (
        arrival.report_id,
        row.bucket,
        arrival.class_id,
        arrival.snippet_hash.hex(),
        arrival.counter_set,
        row.batch,
        arrival.created_hour,
        arrival.signature,
        arrival.blob,
        _crc(row),
    )


def _row(values: Sequence[object]) -> Row:
    match values:
        case [
            int(),
            bytes(report_id),
            int(bucket),
            bytes(class_id),
            str(snippet_hash),
            int(counter_set),
            int(batch),
            int(created_hour),
            bytes(signature),
            bytes(blob),
            int(),
        ]:
            arrival = Arrival(
                ReportId(report_id),
                ClassId(class_id),
                bytes.fromhex(snippet_hash),
                counter_set,
                created_hour,
                signature,
                blob,
            )
            return Row(arrival, BucketId(bucket), BatchId(batch))
        case _:
            raise sqlite3.DatabaseError(f"row {values[0]!r} has columns of other types")


def _crc(row: Row) -> int:
    """CRC-32 of a row: SQLite itself does not notice a changed byte inside a value."""
    arrival = row.arrival
    numbers = f"{row.bucket} {arrival.counter_set} {row.batch} {arrival.created_hour} ".encode()
    crc = zlib.crc32(numbers + arrival.report_id + arrival.class_id + arrival.snippet_hash)
    return zlib.crc32(arrival.blob, zlib.crc32(arrival.signature, crc))
