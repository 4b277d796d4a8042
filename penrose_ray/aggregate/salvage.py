"""Save what is whole of a damaged journal: python -m penrose_ray.aggregate.salvage FILE [TASK_ID].

Rows are taken from the pages themselves, each by its CRC, so a damaged tree or header costs nothing; those
that cannot be read are named and left behind. Sums are added up anew from the rows when the shard opens, so
they hold exactly the reports that were saved: a lost report may come again and counts once. Sums of released
batches without rows, which nothing joins any more, are kept as they are. The damaged file stays as
FILE.damaged. TASK_ID (hexadecimal) is needed where the page that says it is lost.
"""

from __future__ import annotations

import itertools
import os
import sqlite3
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np

from penrose_ray.aggregate.arrival import SumKey
from penrose_ray.aggregate.entries import ENTRY, block_at
from penrose_ray.aggregate.leaf_pages import rows_on
from penrose_ray.aggregate.rows import SUM_COLUMNS, DamagedRowError, row_from, sum_from
from penrose_ray.aggregate.schema import PAGE_BYTES
from penrose_ray.aggregate.store import Journal, lock
from penrose_ray.durable import sync_directory
from penrose_ray.errors import JournalError, PenroseError
from penrose_ray.types import BatchId, BucketId, ClassId, TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.aggregate.arrival import Row
    from penrose_ray.aggregate.rows import SumRecord

_GROUP: Final = 1000


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was saved and what was not."""

    path: Path
    damaged: Path
    kept: int
    lost: tuple[str, ...]
    """Ids of lost reports in hexadecimal digits, as far as the index of ids can still be read."""
    lost_sums: int

    def __str__(self) -> str:
        lines = [f"{self.kept} reports saved in {self.path}, {len(self.lost)} lost; before: {self.damaged}"]
        if self.lost_sums:
            lines.append(f"{self.lost_sums} sums of released batches lost")
        return "\n".join([*lines, *(f"lost: {each}" for each in self.lost)])


def salvage(path: Path, task_id: TaskId | None = None) -> Salvage:
    """Replace a damaged journal by one with everything that can be read.

    Raises:
        JournalError: a shard uses it, nothing can be read, or there is no room for a copy.
    """
    if not path.is_file():
        raise JournalError(f"There is no journal {path}.", remedy="Check the path.")
    handle = lock(path)
    try:
        return _salvage(path, task_id)
    finally:
        os.close(handle)


def _salvage(path: Path, task_id: TaskId | None) -> Salvage:
    fresh = path.with_name(f"{path.name}.saved")
    fresh.unlink(missing_ok=True)
    _resume(path)
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as old:
        with suppress(sqlite3.DatabaseError):
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        journal = Journal(fresh, task_id or _task_id(old, path))
        try:
            purging = _number(old, "purging") - 1
            saved = _copy_rows(path, journal, purging=purging) | _copy_blocks(old, journal, purging=purging)
            lost = tuple(sorted(_ids(old) - saved))
            lost_sums = _copy_rest(old, journal)
        finally:
            journal.close()
    aside = _swap(path, fresh)
    return Salvage(path, aside, len(saved), lost, lost_sums)


def _asides(path: Path) -> Iterator[Path]:
    """Where a damaged file may go: FILE.damaged, FILE.damaged-2, ..."""
    yield path.with_name(f"{path.name}.damaged")
    yield from (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(2))


def _swap(path: Path, fresh: Path) -> Path:
    """Put the damaged file aside and the fresh one in its place; at no time is there no file.

    The WAL goes first: SQLite would apply it to the fresh file.
    """
    aside = next(each for each in _asides(path) if not each.exists())
    with suppress(FileNotFoundError):
        _beside(path, "-wal").rename(_beside(aside, "-wal"))
    _beside(path, "-shm").unlink(missing_ok=True)
    aside.hardlink_to(path)
    fresh.replace(path)
    _beside(fresh, ".lock").unlink(missing_ok=True)
    sync_directory(path.parent)
    return aside


def _resume(path: Path) -> None:
    """Where an earlier salvage was interrupted in `_swap`, give the damaged file its WAL back."""
    aside = next(each for each in _asides(path) if not each.exists())
    if _beside(aside, "-wal").exists():
        _beside(aside, "-wal").rename(_beside(path, "-wal"))


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _task_id(old: sqlite3.Connection, path: Path) -> TaskId:
    try:
        return TaskId(bytes(old.execute("SELECT value FROM about WHERE name = 'task_id'").fetchone()[0]))
    except (sqlite3.DatabaseError, TypeError) as error:
        raise JournalError(
            f"The task of {path} cannot be read: {error}.",
            remedy="Give the task's id as second argument, or restore the file from a backup.",
        ) from error


def _copy_rows(path: Path, journal: Journal, *, purging: int) -> set[str]:
    """Copy the rows of whole pages, but those of a batch that was being deleted; the ids copied."""
    places: list[tuple[int, int]] = []
    saved: set[str] = set()
    with path.open("rb") as file:
        for number, page in enumerate(iter(lambda: file.read(PAGE_BYTES), b"")):
            places += [(arrival, number) for arrival, row in _whole(page) if row.key.batch != purging]
        places.sort()
        for start in range(0, len(places), _GROUP):
            wanted = places[start : start + _GROUP]
            rows = dict(
                each for page in _pages(file, {number for _, number in wanted}) for each in _whole(page)
            )
            group = [rows[arrival] for arrival, _ in wanted]
            journal.record(group)
            saved.update(row.arrival.report_id.hex() for row in group)
    return saved


def _copy_blocks(old: sqlite3.Connection, journal: Journal, *, purging: int) -> set[str]:
    """Copy the reports of whole blocks; the ids copied."""
    saved: set[str] = set()
    # all numbers first: after an error in a damaged tree, a query that still runs begins anew at an old place
    for (first,) in list(_all(old, "SELECT first FROM report_blocks ORDER BY first")):
        with suppress(DamagedRowError, sqlite3.DatabaseError):
            found = block_at(old, first)
            if found and found[1] != purging:
                with journal.change() as change:
                    change.insert_block(*found)
                saved.update(each.hex() for each in found[0].ids())
    return saved


def _pages(file: BinaryIO, numbers: set[int]) -> Iterator[bytes]:
    for number in sorted(numbers):
        file.seek(number * PAGE_BYTES)
        yield file.read(PAGE_BYTES)


def _whole(page: bytes) -> Iterator[tuple[int, Row]]:
    for values in rows_on(page):
        with suppress(DamagedRowError):
            row = row_from(values)
            yield int(str(values[0])), row


def _ids(old: sqlite3.Connection) -> set[str]:
    """Ids from the index of reports, which lies on pages of its own; as far as it can be read."""
    ids: set[str] = set()
    for (raw,) in _all(old, "SELECT entries FROM report_index"):
        with suppress(ValueError, TypeError):
            ids.update(entry["id"].tobytes().hex() for entry in np.frombuffer(raw, dtype=ENTRY))
    return ids


def _number(old: sqlite3.Connection, name: str) -> int:
    with suppress(sqlite3.DatabaseError, TypeError):
        return int(old.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()[0])
    return 0


def _copy_rest(old: sqlite3.Connection, journal: Journal) -> int:
    """Releases, placements, rates, archive places, and sums without rows; how many sums were lost."""
    released = dict(_all(old, "SELECT batch, released_s FROM released_batches"))
    alone = released.keys() - journal.batches_with_rows()
    lost = 0
    with journal.change() as change:
        for batch, released_s in released.items():
            change.release(BatchId(batch), released_s)
        for batch, file, archived_s in _all(old, "SELECT batch, file, archived_s FROM archived"):
            change.archive(BatchId(batch), file, archived_s)
        change.place(
            {BucketId(bucket): state for bucket, state in _all(old, "SELECT bucket, state FROM buckets")}
        )
        for name, value in _all(
            old, "SELECT name, value FROM about WHERE name LIKE 'incoming%' OR name LIKE '%epoch'"
        ):
            change.note(name, int(value))
        for class_id, *rest in _all(old, "SELECT class_id, counter_set, batch, halvings FROM thinned"):
            change.thin(SumKey(ClassId(class_id), rest[0], BatchId(rest[1])), rest[2])
        kept: list[SumRecord] = []
        for values in _all(old, f"SELECT {SUM_COLUMNS} FROM sums"):
            try:
                record = sum_from(values)
            except DamagedRowError:
                lost += values[2] in alone
                continue
            if record.key.batch in alone:
                kept.append(record)
        change.put_sums(kept)
        change.note("folded", 0)
    return lost


def _all(old: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    with suppress(sqlite3.DatabaseError):
        yield from old.execute(sql)


def main(arguments: list[str]) -> int:
    """Salvage FILE, of the task TASK_ID; the exit status is that of the error."""
    try:
        path, *task_id = arguments
        print(salvage(Path(path), TaskId(bytes.fromhex(task_id[0])) if task_id else None))  # noqa: T201 - a result
    except ValueError:
        print(__doc__, file=sys.stderr)  # noqa: T201 - a program's usage
        return 2
    except PenroseError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a program's error
        return error.exit_code
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201 - a program's error
        return JournalError.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
