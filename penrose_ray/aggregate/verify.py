"""Is a journal what was written? Read every row, every sum and the index of reports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.aggregate.entries import (
    READABLE_COLUMNS,
    block_at,
    entries_of,
    entries_of_block,
    readable,
    stored,
)
from penrose_ray.aggregate.rows import ROW_COLUMNS, SUM_COLUMNS, DamagedRowError, row_from, sum_from

if TYPE_CHECKING:
    import sqlite3


def verify(db: sqlite3.Connection) -> None:
    """Check an open journal from end to end.

    Raises:
        sqlite3.DatabaseError: a page cannot be read.
        DamagedRowError: a row, a sum or the index is not what was written; it says which.
    """
    for (finding,) in db.execute("PRAGMA quick_check(1)"):
        if finding != "ok":
            raise DamagedRowError(str(finding))
    sql = f"SELECT {ROW_COLUMNS} FROM single_reports WHERE arrival BETWEEN ? AND ? ORDER BY arrival"
    shown = f"SELECT {READABLE_COLUMNS} FROM report_blocks WHERE first = ?"
    count = blocks = 0
    for entries in stored(db):
        ends = int(entries["arrival"][0]), int(entries["arrival"][-1])
        if block := block_at(db, ends[0]):
            expected = entries_of_block(*block, 0)
            expected["arrival"] = entries["arrival"]
            if db.execute(shown, ends[:1]).fetchone() != readable(*block):
                raise DamagedRowError(f"the columns of the block of reports at {ends[0]}")
            blocks += 1
        else:
            rows = db.execute(sql, ends).fetchall()
            expected = entries_of([row_from(values) for values in rows], 0)
            expected["arrival"] = [values[0] for values in rows]
            count += len(rows)
        if expected.tobytes() != entries.tobytes():
            raise DamagedRowError("the index of reports")
    if blocks != db.execute("SELECT COUNT(*) FROM report_blocks").fetchone()[0]:
        raise DamagedRowError("the index of reports")
    if count != db.execute("SELECT COUNT(*) FROM single_reports").fetchone()[0]:
        raise DamagedRowError("the index of reports")
    for values in db.execute(f"SELECT {SUM_COLUMNS} FROM sums"):
        sum_from(values)
