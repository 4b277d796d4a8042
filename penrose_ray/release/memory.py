"""What a party that decrypts has let through: each batch as it was, each report once, a growing ledger."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING, Final

from penrose_ray.errors import HandoverError
from penrose_ray.release.approval import approve

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.release.approval import Approved
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId

_MOST_REFUSALS: Final = 1000
"""Notes of refused requests that are kept: whoever reaches a gatekeeper's port can make more."""
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS answers (
    batch INTEGER PRIMARY KEY, handover_hash BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS ids (report_id BLOB PRIMARY KEY, batch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heads (entry INTEGER PRIMARY KEY, hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS refusals (
    number INTEGER PRIMARY KEY, request_hash BLOB NOT NULL, reason TEXT NOT NULL
);
"""


class Memory:
    """One party's notes about one task, on disk before anything is decrypted.

    Args:
        task: whose hand-overs.
        ledger_signer: the pinned key of the ledger, 32 bytes.
        store: the file; made when missing.
    """

    def __init__(self, task: Task, ledger_signer: bytes, store: Path) -> None:
        self._task = task
        self._signer = ledger_signer
        store.touch(mode=0o600)
        self.db = sqlite3.connect(store, isolation_level=None, check_same_thread=False)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = FULL")
        self.db.executescript(_TABLES)

    def take(self, request: bytes) -> Approved:
        """A `PartialsRequest` that agrees with task, ledger and notes; the same one is taken again.

        Raises:
            HandoverError: something does not agree, or was taken before with other content; it is noted.
        """
        try:
            approved = approve(self._task, request, ledger_signer=self._signer)
            self._remember(approved)
        except HandoverError as error:
            sql = "INSERT INTO refusals (request_hash, reason) VALUES (?, ?)"
            self.db.execute(sql, (hashlib.sha256(request).digest(), error.message))
            self.db.execute(
                "DELETE FROM refusals WHERE number <= (SELECT MAX(number) FROM refusals) - ?",
                (_MOST_REFUSALS,),
            )
            raise
        return approved

    def has(self, batch: BatchId, handover_hash: bytes) -> bool:
        """Whether the hand-over of a batch with this SHA-256 was taken.

        Raises:
            HandoverError: another one of the same batch was.
        """
        done = self.db.execute("SELECT handover_hash FROM answers WHERE batch = ?", (batch,)).fetchone()
        if done and done[0] != handover_hash:
            raise _refusal(f"batch {batch} was decrypted before with other content")
        return done is not None

    def refusals(self) -> list[str]:
        """Why hand-overs were refused, oldest first."""
        return [row[0] for row in self.db.execute("SELECT reason FROM refusals ORDER BY number")]

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def _remember(self, approved: Approved) -> None:
        """Note batch, ids and ledger; refuse what contradicts the notes."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            self._note(approved)
            self.db.execute("COMMIT")
        except BaseException:
            self.db.execute("ROLLBACK")
            raise

    def _note(self, approved: Approved) -> None:
        db, batch = self.db, approved.handover.batch
        for entry in approved.ledger:
            found = db.execute("SELECT hash FROM heads WHERE entry = ?", (entry.index,)).fetchone()
            if found and found[0] != entry.hash:
                raise _refusal(f"the ledger was forked at entry {entry.index}")
            db.execute("INSERT OR IGNORE INTO heads VALUES (?, ?)", (entry.index, entry.hash))
        (most,) = db.execute("SELECT MAX(entry) FROM heads").fetchone()
        if self.has(batch, approved.handover_hash):
            return
        if most != len(approved.ledger) - 1:
            raise _refusal("the ledger is shorter than it was")
        db.execute("INSERT INTO answers VALUES (?, ?)", (batch, approved.handover_hash))
        try:
            db.executemany("INSERT INTO ids VALUES (?, ?)", [(each, batch) for each in approved.ids])
        except sqlite3.IntegrityError as error:
            raise _refusal("a report of this batch was in another one") from error


def _refusal(why: str) -> HandoverError:
    return HandoverError(
        f"The hand-over is refused: {why}.", remedy="Nothing: a sum is decrypted once, as it was."
    )
