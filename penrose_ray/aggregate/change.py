"""What one transaction may do to a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from penrose_ray.aggregate.block import Block
from penrose_ray.aggregate.entries import (
    block_at,
    drop,
    entries_of,
    entries_of_block,
    of_batch,
    of_buckets,
    put,
    put_block,
    stored,
)
from penrose_ray.aggregate.rows import ROW_COLUMNS, SUM_COLUMNS, row_crc, row_values, sum_values

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.aggregate.rows import SumRecord
    from penrose_ray.types import BatchId, BucketId

_INSERT: Final = f"INSERT INTO single_reports ({ROW_COLUMNS}) VALUES (?{', ?' * ROW_COLUMNS.count(',')})"
_PUT_SUM: Final = f"INSERT OR REPLACE INTO sums ({SUM_COLUMNS}) VALUES (?{', ?' * SUM_COLUMNS.count(',')})"
_OF_KEY: Final = "class_id = ? AND counter_set = ? AND batch = ?"


class Change:
    """Statements of a running transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.gone_ids: list[NDArray[np.uint8]] = []
        """Of reports that were there before."""
        self.new_ids: list[NDArray[np.uint8]] = []

    def insert(self, rows: Sequence[Row]) -> None:
        """Add reports behind all others."""
        if not rows:
            return
        first = self._last_arrival() + 1
        numbered = enumerate(rows, start=first)
        self._db.executemany(_INSERT, ((arrival, *row_values(row)) for arrival, row in numbered))
        added = entries_of(rows, first)
        put(self._db, added)
        self.new_ids.append(added["id"])

    def insert_block(self, block: Block, batch: BatchId) -> None:
        """Add reports of one batch behind all others, as one record."""
        added = entries_of_block(block, batch, self._last_arrival() + 1)
        put_block(self._db, block, batch, added)
        self.new_ids.append(added["id"])

    def _last_arrival(self) -> int:
        """Deleted reports up to `folded` count: a new one with such a number would be taken for added up."""
        sql = """
            SELECT MAX(IFNULL((SELECT last FROM report_index ORDER BY first DESC LIMIT 1), 0),
                       IFNULL((SELECT CAST(value AS INTEGER) FROM about WHERE name = 'folded'), 0))
        """
        return int(self._db.execute(sql).fetchone()[0])

    def reclass(self, numbered: Mapping[int, Row]) -> None:
        """Write the class of these reports anew, by arrival number."""
        sql = "UPDATE single_reports SET class_id = ?, crc = ? WHERE arrival = ?"
        rows = ((row.key.class_id, row_crc(row), arrival) for arrival, row in numbered.items())
        self._db.executemany(sql, rows)
        for found in stored(self._db, after=min(numbered, default=1) - 1):
            places = np.flatnonzero(np.isin(found["arrival"], list(numbered)))
            if not len(places):
                continue
            changed = found.copy()
            for at in places:
                changed["class_id"][at] = np.void(numbered[int(changed["arrival"][at])].key.class_id)
            if block := block_at(self._db, int(found["arrival"][0])):
                renamed = zip(block[0].arrivals(), found["arrival"].tolist(), strict=True)
                arrivals = [numbered[at].arrival if at in numbered else old for old, at in renamed]
                put_block(self._db, Block.of(arrivals), block[1], changed)
            else:
                put(self._db, changed)

    def delete_buckets(self, buckets: Collection[BucketId]) -> None:
        """Delete the reports of these buckets; sums that hold any must be put in the same transaction."""
        self.gone_ids.append(drop(self._db, of_buckets(buckets)).ids)

    def delete_batch(self, batch: BatchId, most: int, *, after: int = 0) -> int | None:
        """Delete up to `most` reports of a batch behind `after`, whose sums must be stored.

        Returns:
            `after` of the next call, None when none is left.
        """
        dropped = drop(self._db, of_batch(batch), after=after, most=most)
        self.gone_ids.append(dropped.ids)
        return dropped.following

    def put_sums(self, sums: Iterable[SumRecord], gone: Iterable[SumKey] = ()) -> None:
        """Store sums that hold every report of the journal, and forget those `gone`."""
        self._db.executemany(_PUT_SUM, map(sum_values, sums))
        self._db.executemany(f"DELETE FROM sums WHERE {_OF_KEY}", gone)
        self.note("folded", self._last_arrival())

    def forget_batch(self, batch: BatchId) -> None:
        """Delete a batch's sums and all that is known of it but its release."""
        for table in ("sums", "thinned", "archived"):
            self._db.execute(f"DELETE FROM {table} WHERE batch = ?", (batch,))

    def forget_release(self, batch: BatchId) -> None:
        """Forget that a batch was released."""
        self._db.execute("DELETE FROM released_batches WHERE batch = ?", (batch,))

    def archive(self, batch: BatchId, file: str, now_s: float) -> None:
        """Note where a batch's sums lie, and delete them here."""
        self._db.execute("DELETE FROM sums WHERE batch = ?", (batch,))
        self._db.execute("INSERT OR REPLACE INTO archived VALUES (?, ?, ?)", (batch, file, now_s))

    def release(self, batch: BatchId, now_s: float) -> None:
        """Note that a batch is released; a second time changes nothing."""
        self._db.execute("INSERT OR IGNORE INTO released_batches VALUES (?, ?)", (batch, now_s))

    def thin(self, key: SumKey, halvings: int) -> None:
        """Note a keep rate."""
        sql = "INSERT OR REPLACE INTO thinned (class_id, counter_set, batch, halvings) VALUES (?, ?, ?, ?)"
        self._db.execute(sql, (*key, halvings))

    def place(self, states: Mapping[BucketId, str | None]) -> None:
        """Set the states of buckets; None removes one."""
        for bucket, state in states.items():
            if state is None:
                self._db.execute("DELETE FROM buckets WHERE bucket = ?", (bucket,))
            else:
                self._db.execute("INSERT OR REPLACE INTO buckets VALUES (?, ?)", (bucket, state))

    def note(self, name: str, value: int) -> None:
        """Set a number in the table about the file."""
        self._db.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, str(value)))
