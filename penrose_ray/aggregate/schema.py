"""The journal's tables, how a new file gets them and how an older file is brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.entries import block_at, entries_of, put, put_record
from penrose_ray.aggregate.rows import ROW_COLUMNS, DamagedRowError, row_from
from penrose_ray.errors import JournalError, JournalVersionError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

    from penrose_ray.types import TaskId

SCHEMA_VERSION: Final = 4
_APPLICATION_ID: Final = 0x504E5231  # "PNR1"
PAGE_BYTES: Final = 16_384

_VERSION_1: Final = """
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

_VERSION_2: Final = """
CREATE TABLE sums (
    class_id BLOB NOT NULL,
    counter_set INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    weight INTEGER NOT NULL,
    blob BLOB NOT NULL,
    id_checksum BLOB NOT NULL,
    score REAL NOT NULL,
    score_hour INTEGER NOT NULL,
    score_used INTEGER NOT NULL,
    crc INTEGER NOT NULL
);
CREATE UNIQUE INDEX sums_by_key ON sums (batch, class_id, counter_set);
CREATE TABLE thinned (
    class_id BLOB NOT NULL,
    counter_set INTEGER NOT NULL,
    batch INTEGER NOT NULL,
    halvings INTEGER NOT NULL,
    PRIMARY KEY (batch, class_id, counter_set)
) WITHOUT ROWID;
CREATE TABLE report_index (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    entries BLOB NOT NULL,
    crc INTEGER NOT NULL
);
DROP INDEX partial_histograms_by_id;
CREATE TABLE buckets (bucket INTEGER PRIMARY KEY, state TEXT NOT NULL);
CREATE TABLE archived (batch INTEGER PRIMARY KEY, file TEXT NOT NULL, archived_s REAL NOT NULL);
"""

_VERSION_3: Final = """
CREATE TABLE report_blocks (first INTEGER PRIMARY KEY, reports BLOB NOT NULL, crc INTEGER NOT NULL);
"""

_VERSION_4: Final = """
ALTER TABLE partial_histograms RENAME TO single_reports;
ALTER TABLE report_blocks ADD COLUMN batch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE report_blocks ADD COLUMN created_hour INTEGER NOT NULL DEFAULT 0;
ALTER TABLE report_blocks ADD COLUMN counter_sets TEXT NOT NULL DEFAULT '{}';
CREATE VIEW partial_histograms AS
    SELECT snippet_hash, counter_set, batch, created_hour FROM single_reports
    UNION ALL
    SELECT snippet.key, report.value, batch, created_hour
    FROM report_blocks, json_each(counter_sets) AS snippet, json_each(snippet.value) AS report;
"""

_INDEX_STEP: Final = 2
_COLUMNS_STEP: Final = 4
_GROUP: Final = 1000
_STEPS: Final = {1: _VERSION_1, 2: _VERSION_2, 3: _VERSION_3, 4: _VERSION_4}
"""What each version adds to the one before it."""


def prepare(db: sqlite3.Connection, path: Path, task_id: TaskId) -> None:
    """Create or migrate the tables of an open database; one transaction a version.

    Raises:
        JournalVersionError: a newer version wrote it.
        JournalError: it is of another program or task.
    """
    fresh = db.execute("PRAGMA schema_version").fetchone()[0] == 0
    if fresh:
        db.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        db.execute("PRAGMA auto_vacuum = INCREMENTAL")
    elif db.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID:
        raise JournalError(
            f"{path} is a database of another program.", remedy="Point the state directory elsewhere."
        )
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise JournalVersionError(
            f"The journal {path} has schema version {version}, this program knows {SCHEMA_VERSION}.",
            remedy="Use the version of penrose-ray that wrote it, or a newer one.",
        )
    db.execute("PRAGMA journal_mode = WAL")
    for step in range(version + 1, SCHEMA_VERSION + 1):
        _apply(db, step, task_id)
    found: bytes = (db.execute("SELECT value FROM about WHERE name = 'task_id'").fetchone() or (b"",))[0]
    if found != task_id:
        raise JournalError(
            f"The journal {path} belongs to task {found.hex()}, not {task_id.hex()}.",
            remedy="Give each task a state directory of its own.",
        )


def _apply(db: sqlite3.Connection, step: int, task_id: TaskId) -> None:
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in _STEPS[step].split(";"):
            db.execute(statement)
        if step == _INDEX_STEP:
            _index_rows(db)
        if step == _COLUMNS_STEP:
            _describe_blocks(db)
        if step == 1:
            db.execute("INSERT INTO about VALUES ('task_id', ?)", (task_id,))
            db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        db.execute(f"PRAGMA user_version = {step}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _index_rows(db: sqlite3.Connection) -> None:
    """Enter the reports of a journal of version 1 into the index that version 2 has."""
    at = 0
    sql = f"SELECT {ROW_COLUMNS} FROM partial_histograms WHERE arrival > ? ORDER BY arrival LIMIT {_GROUP}"
    while page := db.execute(sql, (at,)).fetchall():
        entries = entries_of([row_from(values) for values in page], 0)
        entries["arrival"] = [values[0] for values in page]
        put(db, entries)
        if page[-1][0] <= at:
            raise DamagedRowError("the order of the reports")
        at = page[-1][0]


def _describe_blocks(db: sqlite3.Connection) -> None:
    """Give the blocks of a journal of version 3 the columns that version 4 has."""
    for (first,) in db.execute("SELECT first FROM report_blocks").fetchall():
        if block := block_at(db, first):
            put_record(db, first, *block)
