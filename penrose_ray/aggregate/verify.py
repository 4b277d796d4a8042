"""Is a journal what was written? Read every row, every sum and the index of ids."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

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
    rows = 0
    for values in db.execute(f"SELECT {ROW_COLUMNS} FROM partial_histograms"):
        row = row_from(values)
        rows ^= zlib.crc32(row.arrival.report_id, values[0])
    index, before = 0, b""
    sql = """
        SELECT report_id, arrival FROM partial_histograms INDEXED BY partial_histograms_by_id
        ORDER BY report_id
    """
    for report_id, arrival in db.execute(sql):
        if report_id <= before:
            raise DamagedRowError("the index of ids")
        index, before = index ^ zlib.crc32(report_id, arrival), report_id
    if index != rows:
        raise DamagedRowError("the index of ids")
    for values in db.execute(f"SELECT {SUM_COLUMNS} FROM sums"):
        sum_from(values)
