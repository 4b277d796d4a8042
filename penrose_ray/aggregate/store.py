"""The journal of one shard: a SQLite file in WAL mode, the only truth about what was acknowledged.

Reports lie in order of arrival, and so does what they are looked up by: one compact record a commit. The ids
are read into memory when the file is opened; an index on random ids would rewrite as many bytes as the
reports themselves have. The file is bound to one task and used by one process at a time. Sums are kept too,
up to the arrival number `folded`; reports behind it are added again when the file is opened.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import sqlite3
from typing import TYPE_CHECKING, Final, Literal, NoReturn

import numpy as np

from penrose_ray.aggregate.arrival import SumKey
from penrose_ray.aggregate.change import Change
from penrose_ray.aggregate.entries import block_at, chosen, of_batch, stored
from penrose_ray.aggregate.id_index import IdIndex
from penrose_ray.aggregate.rows import ROW_COLUMNS, SUM_COLUMNS, DamagedRowError, row_from, sum_from
from penrose_ray.aggregate.schema import prepare
from penrose_ray.aggregate.verify import verify
from penrose_ray.durable import SQLITE_ERRORS
from penrose_ray.errors import JournalError, JournalFullError
from penrose_ray.types import BatchId, BucketId, ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from penrose_ray.aggregate.arrival import Row
    from penrose_ray.aggregate.entries import Choice
    from penrose_ray.aggregate.rows import SumRecord
    from penrose_ray.types import TaskId

_PAGE: Final = 1000
_CACHE_KIB: Final = 65_536
_CHECKPOINT_PAGES: Final = 128
"""2 MiB: SQLite's own 1,000 pages of this size would stop intake for a fifth of a second at a time."""
_BUSY_MS: Final = 5000
"""For whoever reads the file at the moment."""
_IN_USE: Final = "in_use"


class Journal:
    """Reports, sums and released batches of one shard.

    `synchronous` FULL survives a power cut, NORMAL a crash of the process only.

    Raises:
        JournalVersionError: the file was written by a newer version.
        JournalError: the file is damaged, of another task, in use, or cannot be written.
    """

    def __init__(
        self, path: Path, task_id: TaskId, *, synchronous: Literal["FULL", "NORMAL"] = "FULL"
    ) -> None:
        self.path = path
        self._is_whole = False
        self._ids = IdIndex()
        self._lock = lock(path)
        try:
            with self._typed_errors():
                self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                prepare(self._db, path, task_id)
                self._db.execute(f"PRAGMA synchronous = {synchronous}")
                self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
                self._db.execute("PRAGMA secure_delete = ON")
                self._db.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
                self._db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
                if self.number(_IN_USE):  # the last process did not close it
                    verify(self._db)
                for entries in stored(self._db):
                    self._ids.add(entries["id"])
            self._note_in_use(1)
            self._is_whole = True
        except BaseException:
            self.close()
            raise

    def known(self, ids: Iterable[ReportId]) -> set[ReportId]:
        """Which of these ids are in the journal."""
        return self._ids.known(list(ids))

    def has(self, ids: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which of these ids, shape (n, 32), are in the journal."""
        return self._ids.has(ids)

    def ids_by_key(self, batch: BatchId) -> dict[SumKey, list[ReportId]]:
        """Ids of a batch's reports by sum, in order of arrival."""
        found: dict[SumKey, list[ReportId]] = {}
        choice = of_batch(batch)
        with self._typed_errors():
            for entries in stored(self._db):
                own = entries[choice(entries)]
                for class_id, counter_set, raw in zip(
                    own["class_id"].tolist(), own["counter_set"].tolist(), own["id"], strict=True
                ):
                    key = SumKey(ClassId(class_id), counter_set, batch)
                    found.setdefault(key, []).append(ReportId(raw.tobytes()))
        return found

    def record(self, rows: Sequence[Row]) -> None:
        """Commit these rows, all or none; raises like `change`."""
        with self.change() as change:
            change.insert(rows)

    @contextlib.contextmanager
    def change(self) -> Iterator[Change]:
        """One transaction: committed at the end of the block, undone on any error.

        Raises:
            JournalFullError: there is no room on the disk.
            JournalError: an id is already there, or the file is damaged.
        """
        with self._typed_errors():
            self._db.execute("BEGIN IMMEDIATE")
            change = Change(self._db)
            try:
                yield change
                ids = self._ids.copy()  # now: nothing may fail once it is committed
                for each in change.gone_ids:
                    ids.remove(each)
                for each in change.new_ids:
                    ids.add(each)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        self._ids = ids

    def rows(self, choice: Choice | None = None, *, after: int = 0) -> Iterator[Row]:
        """Reports behind arrival number `after`, in order of arrival, all or those chosen.

        Raises:
            JournalError: a page is damaged, or a row is not what was written.
        """
        for _, row in self.numbered(choice, after=after):
            yield row

    def numbered(self, choice: Choice | None = None, *, after: int = 0) -> Iterator[tuple[int, Row]]:
        """Like `rows`, with arrival numbers; read page by page, so that the journal may change meanwhile."""
        yield from heapq.merge(
            self._single(choice, after), self._from_blocks(choice, after), key=lambda found: found[0]
        )

    def _from_blocks(self, choice: Choice | None, after: int) -> Iterator[tuple[int, Row]]:
        at = -1
        sql = "SELECT first FROM report_blocks WHERE first > ? ORDER BY first LIMIT 1"
        while True:
            with self._typed_errors():
                found = self._db.execute(sql, (at,)).fetchone()
                if found is None:
                    return
                if found[0] <= at:
                    raise DamagedRowError("the order of the blocks of reports")
                at = found[0]
                numbered = self._block_rows(at, choice, after)
            yield from numbered

    def _block_rows(self, first: int, choice: Choice | None, after: int) -> list[tuple[int, Row]]:
        entries = next(stored(self._db, after=first - 1), None)
        if entries is None or entries["arrival"][0] != first:
            raise DamagedRowError("the index of reports")
        taken = entries["arrival"] > after
        if choice is not None and taken.any():
            taken &= choice(entries)
        if not taken.any() or (block := block_at(self._db, first)) is None:
            return []
        rows = block[0].part(taken).rows(block[1])
        return list(zip(entries["arrival"][taken].tolist(), rows, strict=True))

    def _single(self, choice: Choice | None, after: int) -> Iterator[tuple[int, Row]]:
        """Reports that came one by one."""
        sql = f"SELECT {ROW_COLUMNS} FROM single_reports WHERE"
        if choice is None:
            while page := self._read(f"{sql} arrival > ? ORDER BY arrival LIMIT {_PAGE}", (after,)):
                if page[-1][0] <= after:
                    raise damaged(self.path, "the order of its reports is not what was written")
                yield from page
                after = page[-1][0]
            return
        with self._typed_errors():
            arrivals = list(chosen(self._db, choice, after=after))
        for start in range(0, len(arrivals), _PAGE):
            part = arrivals[start : start + _PAGE]
            marks = ",".join("?" * len(part))
            yield from self._read(f"{sql} arrival IN ({marks}) ORDER BY arrival", part)

    def _read(self, sql: str, bound: Sequence[int]) -> list[tuple[int, Row]]:
        with self._typed_errors():
            return [(values[0], row_from(values)) for values in self._db.execute(sql, bound)]

    def number(self, name: str) -> int:
        """A number that `Change.note` has set; 0 before."""
        with self._typed_errors():
            found = self._db.execute("SELECT value FROM about WHERE name = ?", (name,)).fetchone()
        return int(found[0]) if found else 0

    def folded(self) -> int:
        """Arrival number up to which reports are in the stored sums."""
        return self.number("folded")

    def epoch(self) -> int:
        """Epoch of the last placement; 0 before the first."""
        return self.number("epoch")

    def sum(self, key: SumKey) -> SumRecord | None:
        """The stored sum of this key.

        Raises:
            JournalError: it is not what was written.
        """
        sql = f"SELECT {SUM_COLUMNS} FROM sums WHERE class_id = ? AND counter_set = ? AND batch = ?"
        with self._typed_errors():
            found = self._db.execute(sql, key).fetchone()
            return sum_from(found) if found else None

    def sum_weights(self) -> dict[SumKey, int]:
        """Weights of all stored sums."""
        with self._typed_errors():
            sql = "SELECT class_id, counter_set, batch, weight FROM sums"
            return {SumKey(*values[:3]): values[3] for values in self._db.execute(sql)}

    def released(self) -> dict[BatchId, float]:
        """Released batches and when they were released, seconds since the epoch."""
        with self._typed_errors():
            sql = "SELECT batch, released_s FROM released_batches ORDER BY batch"
            return {BatchId(batch): released_s for batch, released_s in self._db.execute(sql)}

    def thinned(self) -> dict[SumKey, int]:
        """How often the keep rate of a sum was halved."""
        with self._typed_errors():
            sql = "SELECT class_id, counter_set, batch, halvings FROM thinned"
            return {
                SumKey(ClassId(values[0]), values[1], BatchId(values[2])): values[3]
                for values in self._db.execute(sql)
            }

    def buckets(self) -> dict[BucketId, str]:
        """States of the buckets that a directory has placed here; empty when there is none."""
        with self._typed_errors():
            sql = "SELECT bucket, state FROM buckets"
            return {BucketId(bucket): state for bucket, state in self._db.execute(sql)}

    def buckets_with_rows(self) -> set[BucketId]:
        """Buckets that hold a report."""
        return {BucketId(byte) for byte in self._ids.first_bytes()}

    def batches_with_rows(self) -> set[BatchId]:
        """Batches whose reports have not been deleted."""
        with self._typed_errors():
            return {
                BatchId(int(batch)) for entries in stored(self._db) for batch in np.unique(entries["batch"])
            }

    def archived(self) -> dict[BatchId, tuple[str, float]]:
        """Batches whose sums lie in an archive file, and since when."""
        with self._typed_errors():
            sql = "SELECT batch, file, archived_s FROM archived"
            return {BatchId(batch): (file, archived_s) for batch, file, archived_s in self._db.execute(sql)}

    def shrink(self) -> bool:
        """Give freed pages back and empty the WAL, so that what was deleted is gone from the disk.

        Returns:
            Whether it is; while somebody reads the file, the WAL keeps what was deleted.
        """
        with self._typed_errors():
            self._db.execute("PRAGMA incremental_vacuum").fetchall()
            self._db.execute("PRAGMA busy_timeout = 0")  # reports wait meanwhile; the next call tries again
            try:
                (is_busy, *_) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        return not is_busy

    def close(self) -> None:
        """Close the file and give it free; the last close folds the WAL into it."""
        if hasattr(self, "_db"):
            with contextlib.suppress(JournalError):  # then the next process checks every row
                if self._is_whole:
                    self._note_in_use(0)
            self._db.close()
        os.close(self._lock)

    def _note_in_use(self, value: int) -> None:
        with self.change() as change:
            change.note(_IN_USE, value)

    @contextlib.contextmanager
    def _typed_errors(self) -> Iterator[None]:
        try:
            yield
        except DamagedRowError as error:
            raise damaged(self.path, f"{error} is not what was written") from error
        except SQLITE_ERRORS as error:
            _raise_typed(self.path, error)


def damaged(path: Path, reason: str) -> JournalError:
    """The error for a journal that lost bytes."""
    return JournalError(
        f"The journal {path} is damaged: {reason}.",
        remedy=f"Stop the shard, then save what is whole: python -m penrose_ray.aggregate.salvage {path}.",
    )


def _raise_typed(path: Path, error: Exception) -> NoReturn:
    name = getattr(error, "sqlite_errorname", "")
    if name == "SQLITE_FULL":
        raise JournalFullError(
            f"There is no room left for the journal {path}; nothing of this commit was written.",
            remedy="Free space on that disk; intake goes on by itself.",
        ) from error
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or isinstance(error, UnicodeDecodeError):
        raise damaged(path, str(error)) from error
    raise JournalError(
        f"The journal {path} cannot be used: {error}.", remedy="Check the disk and the file's permissions."
    ) from error


def lock(path: Path) -> int:
    """Hold `path`.lock until the descriptor returned is closed.

    Raises:
        JournalError: another process holds it, or the file cannot be made.
    """
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
