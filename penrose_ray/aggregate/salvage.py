"""Save what is whole of a damaged journal: python -m penrose_ray.aggregate.salvage FILE.

Rows are fetched one by one and checked; those that cannot be read are named and left behind. Sums are added
up anew from the rows when the shard opens, so they hold exactly the reports that were saved; sums whose rows
were deleted after their release, or half deleted, are kept as they are. The damaged file stays as
FILE.damaged.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penrose_ray.aggregate.arrival import SumKey
from penrose_ray.aggregate.rows import ROW_COLUMNS, SUM_COLUMNS, DamagedRowError, row_from, sum_from
from penrose_ray.aggregate.store import Journal
from penrose_ray.errors import JournalError, PenroseError
from penrose_ray.types import BatchId, BucketId, ClassId, TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.aggregate.arrival import Row
    from penrose_ray.aggregate.rows import SumRecord

_GROUP: Final = 1000
_UNREADABLE: Final = (sqlite3.DatabaseError, DamagedRowError)


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was saved and what was not."""

    path: Path
    damaged: Path
    kept: int
    lost: tuple[str, ...]
    """Ids of lost reports in hexadecimal digits; `row N` where even the id is gone."""
    lost_sums: int

    def __str__(self) -> str:
        lines = [f"{self.kept} reports saved in {self.path}, {len(self.lost)} lost; before: {self.damaged}"]
        if self.lost_sums:
            lines.append(f"{self.lost_sums} sums of released batches lost")
        return "\n".join([*lines, *(f"lost: {each}" for each in self.lost)])


def salvage(path: Path) -> Salvage:
    """Replace a damaged journal by one with everything that can be read.

    Raises:
        JournalError: not even the task of the journal can be read, or there is no room for a copy.
    """
    aside, fresh = path.with_name(f"{path.name}.damaged"), path.with_name(f"{path.name}.saved")
    fresh.unlink(missing_ok=True)
    lost: list[str] = []
    with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as old:
        task_id = _task_id(old, path)
        journal = Journal(fresh, task_id)
        try:
            kept = _copy_rows(old, journal, lost)
            lost_sums = _copy_rest(old, journal)
        finally:
            journal.close()
    for suffix in ("", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    fresh.rename(path)
    fresh.with_name(f"{fresh.name}.lock").unlink(missing_ok=True)
    handle = os.open(path.parent, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)
    return Salvage(path, aside, kept, tuple(lost), lost_sums)


def _task_id(old: sqlite3.Connection, path: Path) -> TaskId:
    try:
        return TaskId(bytes(old.execute("SELECT value FROM about WHERE name = 'task_id'").fetchone()[0]))
    except (sqlite3.DatabaseError, TypeError) as error:
        raise JournalError(
            f"Nothing of {path} can be read: {error}.", remedy="Restore the file from a backup."
        ) from error


def _copy_rows(old: sqlite3.Connection, journal: Journal, lost: list[str]) -> int:
    kept = 0
    group: list[Row] = []
    for row in _readable(old, lost):
        group.append(row)
        if len(group) == _GROUP:
            journal.record(group)
            kept, group = kept + len(group), []
    journal.record(group)
    return kept + len(group)


def _readable(old: sqlite3.Connection, lost: list[str]) -> Iterator[Row]:
    """Rows that can be read; the ids of the others go to `lost`."""
    ids = _ids(old)
    purging = _number(old, "purging") - 1
    for arrival in _arrivals(old, ids):
        try:
            values = old.execute(
                f"SELECT {ROW_COLUMNS} FROM partial_histograms WHERE arrival = ?", (arrival,)
            )
            found = values.fetchone()
            if found is None and arrival not in ids:
                continue
            row = row_from(found or (arrival,))
            if row.key.batch != purging:
                yield row
        except _UNREADABLE:
            lost.append(ids.get(arrival, f"row {arrival}"))


def _ids(old: sqlite3.Connection) -> dict[int, str]:
    """Arrival numbers and ids from the index, which lies on pages of its own; as far as it can be read."""
    ids: dict[int, str] = {}
    with suppress(sqlite3.DatabaseError):
        sql = "SELECT arrival, report_id FROM partial_histograms INDEXED BY partial_histograms_by_id"
        for arrival, report_id in old.execute(f"{sql} ORDER BY report_id"):
            ids[arrival] = report_id.hex()
    return ids


def _arrivals(old: sqlite3.Connection, ids: dict[int, str]) -> range:
    highest = max(max(ids, default=0), _number(old, "folded"))
    with suppress(sqlite3.DatabaseError, TypeError):
        highest = max(highest, old.execute("SELECT MAX(arrival) FROM partial_histograms").fetchone()[0])
    return range(1, highest + 1)


def _number(old: sqlite3.Connection, name: str) -> int:
    with suppress(sqlite3.DatabaseError, TypeError):
        return int(old.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()[0])
    return 0


def _copy_rest(old: sqlite3.Connection, journal: Journal) -> int:
    """Releases, placements, rates, archive places, and sums without rows; how many sums were lost."""
    with_rows = journal.batches_with_rows()
    lost = 0
    with journal.change() as change:
        for batch, released_s in _all(old, "SELECT batch, released_s FROM released_batches"):
            change.release(BatchId(batch), released_s)
        for batch, file, archived_s in _all(old, "SELECT batch, file, archived_s FROM archived"):
            change.archive(BatchId(batch), file, archived_s)
        change.place(
            {BucketId(bucket): state for bucket, state in _all(old, "SELECT bucket, state FROM buckets")}
        )
        for name, value in _all(
            old, "SELECT name, value FROM about WHERE name LIKE 'incoming%' OR name = 'epoch'"
        ):
            change.note(name, int(value))
        for class_id, *rest in _all(old, "SELECT class_id, counter_set, batch, halvings FROM thinned"):
            change.thin(SumKey(ClassId(class_id), rest[0], BatchId(rest[1])), rest[2])
        kept: list[SumRecord] = []
        for values in _all(old, f"SELECT {SUM_COLUMNS} FROM sums"):
            try:
                record = sum_from(values)
            except DamagedRowError:
                lost += values[2] not in with_rows
                continue
            if record.key.batch not in with_rows:
                kept.append(record)
        change.put_sums(kept)
        change.note("folded", 0)
    return lost


def _all(old: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    with suppress(sqlite3.DatabaseError):
        yield from old.execute(sql)


def main(arguments: list[str]) -> int:
    """Salvage the journals named; the exit status is that of the first error."""
    for argument in arguments:
        try:
            print(salvage(Path(argument)))  # noqa: T201 - a program's result
        except PenroseError as error:
            print(error, file=sys.stderr)  # noqa: T201 - a program's error
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
