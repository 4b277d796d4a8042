"""A compact copy of what reports are looked up by: a record of 72 bytes a report, one blob a commit."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from penrose_ray.aggregate.block import decode
from penrose_ray.aggregate.id_index import ID_BYTES
from penrose_ray.aggregate.rows import DamagedRowError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterator, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.aggregate.block import Block
    from penrose_ray.types import BatchId, BucketId

    Entries: TypeAlias = NDArray[np.void]
    Choice: TypeAlias = Callable[[Entries], NDArray[np.bool_]]

ENTRY: Final = np.dtype(
    [
        ("arrival", "<i8"),
        ("id", "u1", ID_BYTES),
        ("class_id", "V16"),
        ("batch", "<i8"),
        ("counter_set", "<i8"),
    ]
)

_KEY_NUMBERS: Final = struct.Struct("<qq")
"""Batch and counter set, with which an entry ends, behind the class."""
READABLE_COLUMNS: Final = "batch, created_hour, counter_sets"
"""What a view of the journal shows of a block."""


def entries_of(rows: Sequence[Row], first: int) -> Entries:
    """Entries of rows that get the arrival numbers from `first` on."""
    entries = np.empty(len(rows), dtype=ENTRY)
    entries["arrival"] = np.arange(first, first + len(rows))
    ids = b"".join(row.arrival.report_id for row in rows)
    entries["id"] = np.frombuffer(ids, dtype=np.uint8).reshape(-1, ID_BYTES)
    entries["class_id"] = np.frombuffer(b"".join(row.key.class_id for row in rows), dtype="V16")
    entries["batch"] = [row.key.batch for row in rows]
    entries["counter_set"] = [row.key.counter_set for row in rows]
    return entries


def entries_of_block(block: Block, batch: BatchId, first: int) -> Entries:
    """Entries of a block that gets the arrival numbers from `first` on."""
    entries = np.empty(len(block), dtype=ENTRY)
    entries["arrival"] = np.arange(first, first + len(block))
    entries["id"] = block.report_id
    entries["class_id"] = np.ascontiguousarray(block.class_id).view("V16").ravel()[block.kind]
    entries["batch"] = batch
    entries["counter_set"] = block.counter_set
    return entries


def of_keys(keys: Collection[SumKey]) -> Choice:
    """The reports of these sums."""
    wanted = {key.class_id + _KEY_NUMBERS.pack(key.batch, key.counter_set) for key in keys}
    size = 16 + _KEY_NUMBERS.size

    def choice(entries: Entries) -> NDArray[np.bool_]:
        raw = np.ascontiguousarray(entries).view(np.uint8).reshape(-1, ENTRY.itemsize)
        own = np.ascontiguousarray(raw[:, -size:]).view(f"V{size}").ravel().tolist()
        return np.array([each in wanted for each in own], dtype=np.bool_)

    return choice


def of_batch(batch: BatchId) -> Choice:
    """The reports of one batch."""
    return lambda entries: entries["batch"] == batch


def of_buckets(buckets: Collection[BucketId]) -> Choice:
    """The reports of these buckets."""
    wanted = np.array(sorted(buckets), dtype=np.uint8)
    return lambda entries: np.isin(entries["id"][:, 0], wanted)


def put(db: sqlite3.Connection, entries: Entries) -> None:
    """Store the entries of one commit."""
    raw = entries.tobytes()
    values = (int(entries["arrival"][0]), int(entries["arrival"][-1]), raw, zlib.crc32(raw))
    db.execute("INSERT OR REPLACE INTO report_index VALUES (?, ?, ?, ?)", values)


def put_block(db: sqlite3.Connection, block: Block, batch: BatchId, entries: Entries) -> None:
    """Store a block with its entries."""
    put(db, entries)
    put_record(db, int(entries["arrival"][0]), block, batch)


def put_record(db: sqlite3.Connection, first: int, block: Block, batch: BatchId) -> None:
    """Store a block whose entries begin with arrival number `first`, and beside it what SQL can read."""
    raw = block.encode(batch)
    values = (first, raw, zlib.crc32(raw), *readable(block, batch))
    db.execute("INSERT OR REPLACE INTO report_blocks VALUES (?, ?, ?, ?, ?, ?)", values)


def readable(block: Block, batch: BatchId) -> tuple[int, int, str]:
    """Values of `READABLE_COLUMNS`."""
    return batch, block.created_hour, block.counter_sets_by_snippet()


def block_at(db: sqlite3.Connection, first: int) -> tuple[Block, BatchId] | None:
    """The block whose entries begin with arrival number `first`, if these reports are in one.

    Raises:
        DamagedRowError: it is not what was written.
    """
    found = db.execute("SELECT reports, crc FROM report_blocks WHERE first = ?", (first,)).fetchone()
    if found is None:
        return None
    raw, crc = found
    if not isinstance(raw, bytes) or zlib.crc32(raw) != crc:
        raise DamagedRowError(f"the block of reports at {first}")
    return decode(raw)


def stored(db: sqlite3.Connection, *, after: int = 0) -> Iterator[Entries]:
    """Entries of each commit that reaches behind arrival number `after`, oldest first.

    Raises:
        DamagedRowError: they are not what was written.
    """
    at = -1
    sql = "SELECT first, entries, crc FROM report_index WHERE last > ? AND first > ? ORDER BY first LIMIT 1"
    while found := db.execute(sql, (after, at)).fetchone():
        before, (at, raw, crc) = at, found
        if at <= before:  # of a damaged tree SQLite gives rows in any order, the same ones for ever
            raise DamagedRowError("the order of the index of reports")
        if not raw or not isinstance(raw, bytes) or zlib.crc32(raw) != crc or len(raw) % ENTRY.itemsize:
            raise DamagedRowError("the index of reports")
        yield np.frombuffer(raw, dtype=ENTRY)


def chosen(db: sqlite3.Connection, choice: Choice, *, after: int = 0) -> Iterator[int]:
    """Arrival numbers, ascending, of the reports chosen behind `after`."""
    for entries in stored(db, after=after):
        arrivals = entries["arrival"][choice(entries)]
        yield from (int(arrival) for arrival in arrivals if arrival > after)


@dataclass(frozen=True, slots=True)
class Dropped:
    """Reports that were deleted."""

    ids: NDArray[np.uint8]
    """Shape (n, 32)."""
    following: int | None
    """Arrival number behind which to go on; None when nothing is left to delete."""


def drop(db: sqlite3.Connection, choice: Choice, *, after: int = 0, most: int | None = None) -> Dropped:
    """Delete the reports chosen behind `after`, up to `most`, here and where they are stored."""
    ids: list[NDArray[np.uint8]] = []
    count = 0
    for entries in stored(db, after=after):
        gone = np.flatnonzero(choice(entries) & (entries["arrival"] > after))
        gone = gone[: None if most is None else most - count]
        if len(gone):
            _delete(db, entries, gone)
            ids.append(entries["id"][gone])
            count += len(gone)
        if count == most:
            return Dropped(np.concatenate(ids), int(entries["arrival"][gone[-1]]))
    return Dropped(np.concatenate(ids) if ids else np.empty((0, ID_BYTES), np.uint8), None)


def _delete(db: sqlite3.Connection, entries: Entries, gone: NDArray[np.intp]) -> None:
    """Delete some of the reports of one commit."""
    first = int(entries["arrival"][0])
    block = block_at(db, first)
    left = np.delete(entries, gone)
    db.execute("DELETE FROM report_index WHERE first = ?", (first,))
    if block is None:
        arrivals = ((int(arrival),) for arrival in entries["arrival"][gone])
        db.executemany("DELETE FROM single_reports WHERE arrival = ?", arrivals)
        if len(left):
            put(db, left)
    else:
        db.execute("DELETE FROM report_blocks WHERE first = ?", (first,))
        if len(left):
            put_block(db, block[0].part(np.delete(np.arange(len(entries)), gone)), block[1], left)
