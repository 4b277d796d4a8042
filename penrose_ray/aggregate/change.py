"""What one transaction may do to a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.rows import ROW_COLUMNS, SUM_COLUMNS, row_crc, row_values, sum_values

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Collection, Iterable, Mapping

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.aggregate.rows import SumRecord
    from penrose_ray.types import BatchId, BucketId

_INSERT: Final = (
    f"INSERT INTO partial_histograms ({ROW_COLUMNS}) VALUES (NULL{', ?' * ROW_COLUMNS.count(',')})"
)
_PUT_SUM: Final = f"INSERT OR REPLACE INTO sums ({SUM_COLUMNS}) VALUES (?{', ?' * SUM_COLUMNS.count(',')})"
_OF_KEY: Final = "class_id = ? AND counter_set = ? AND batch = ?"


class Change:
    """Statements of a running transaction."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def insert(self, rows: Iterable[Row]) -> None:
        """Add reports behind all others."""
        self._db.executemany(_INSERT, map(row_values, rows))

    def reclass(self, rows: Iterable[Row]) -> None:
        """Write the class of these reports anew."""
        sql = "UPDATE partial_histograms SET class_id = ?, crc = ? WHERE report_id = ?"
        self._db.executemany(sql, ((row.key.class_id, row_crc(row), row.arrival.report_id) for row in rows))

    def delete_buckets(self, buckets: Collection[BucketId]) -> None:
        """Delete the reports of these buckets; the sums must be put in the same transaction."""
        self._db.executemany("DELETE FROM partial_histograms WHERE bucket = ?", ((each,) for each in buckets))

    def delete_batch(self, batch: BatchId, most: int) -> int:
        """Delete up to `most` reports of a batch, whose sums must be stored; how many there were."""
        some = "SELECT arrival FROM partial_histograms WHERE batch = ? LIMIT ?"
        sql = f"DELETE FROM partial_histograms WHERE arrival IN ({some})"
        return self._db.execute(sql, (batch, most)).rowcount

    def put_sums(self, sums: Iterable[SumRecord], gone: Iterable[SumKey] = ()) -> None:
        """Store sums that hold every report of the journal, and forget those `gone`."""
        self._db.executemany(_PUT_SUM, map(sum_values, sums))
        self._db.executemany(f"DELETE FROM sums WHERE {_OF_KEY}", gone)
        folded = self._db.execute("SELECT MAX(arrival) FROM partial_histograms").fetchone()[0]
        self.note("folded", folded or 0)

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
