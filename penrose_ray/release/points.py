"""Points of the key server: how many evaluations each enrolled client has had in an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penrose_ray.errors import QuotaError
from penrose_ray.release.enrolment import Enrolment, digest

if TYPE_CHECKING:
    from pathlib import Path

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS points (
    credential_hash BLOB PRIMARY KEY, epoch INTEGER NOT NULL, spent INTEGER NOT NULL
) WITHOUT ROWID;
"""


class Points(Enrolment):
    """Enrolled clients and what they have spent; a restart gives nobody a second quota."""

    def __init__(self, path: Path, *, per_epoch: int) -> None:
        super().__init__(path, _TABLE, command="keyserver")
        self._per_epoch = per_epoch

    def spend(self, credential: bytes, epoch: int, points: int) -> None:
        """Book points of a client.

        Raises:
            QuotaError: not enrolled, or the epoch's points are used up; nothing is booked.
        """
        with self._booking(credential) as cursor:
            client = digest(credential)
            row = cursor.execute(
                "SELECT spent FROM points WHERE credential_hash = ? AND epoch = ?", (client, epoch)
            ).fetchone()
            spent = points + (row[0] if row else 0)
            if spent > self._per_epoch:
                raise QuotaError(
                    f"The client asks for its point {spent}, {self._per_epoch} an epoch are allowed.",
                    remedy="Go on in the next epoch.",
                )
            cursor.execute("INSERT OR REPLACE INTO points VALUES (?, ?, ?)", (client, epoch, spent))
