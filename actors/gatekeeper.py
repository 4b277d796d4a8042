"""The gatekeeper: holds one share of a split key and decrypts its part of each released sum once.

It runs apart from the aggregation service and the design server, by a third party. Neither of them can open a
sum without it, and it can open none without them.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from penrose_ray.actors.serving import binary, party
from penrose_ray.crypto.key_share import KeyShare, read_share
from penrose_ray.errors import GatekeeperError, WrongKeyError
from penrose_ray.release.approval import approve, context_of
from penrose_ray.task import verify

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.release.approval import Approved
    from penrose_ray.release.handover import Entry
    from penrose_ray.types import BatchId

_MOST_BYTES: Final = 256 << 20
_MOST_REFUSALS: Final = 1000
"""Notes of refused requests that are kept: whoever reaches the port can make more."""
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS partials (
    batch INTEGER NOT NULL, class_id BLOB NOT NULL, counter_set INTEGER NOT NULL, sub_batch INTEGER NOT NULL,
    partial BLOB NOT NULL, PRIMARY KEY (batch, class_id, counter_set, sub_batch)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
    batch INTEGER PRIMARY KEY, handover_hash BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS ids (report_id BLOB PRIMARY KEY, batch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS heads (entry INTEGER PRIMARY KEY, hash BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS refusals (
    number INTEGER PRIMARY KEY, request_hash BLOB NOT NULL, reason TEXT NOT NULL
);
"""


class Gatekeeper:
    """One party's share at work; `store` is what it remembers.

    Raises:
        WrongKeyError: the share is not of the task's key.
        KeyMissingError, KeyPermissionError, KeyFormatError: as `read_share`.
    """

    def __init__(self, share_file: Path, signed_task: bytes, ledger_signer: bytes, store: Path) -> None:
        self.task = verify(signed_task)
        self._share: KeyShare = read_share(share_file)
        if self._share.key.public_key.fingerprint != self.task.key().fingerprint:
            raise WrongKeyError(
                "This share is not of the task's key.", remedy="Give the gatekeeper the share of this task."
            )
        self._signer = ledger_signer
        store.touch(mode=0o600)
        self._db = sqlite3.connect(store, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_TABLES)

    def answer(self, raw: bytes) -> bytes:
        """Partial decryptions of a released batch, entry by entry; a repeat gets the same bytes.

        Raises:
            GatekeeperError: something does not agree, or was decrypted before with other content. The refusal
                is kept.
        """
        try:
            approved = approve(self.task, raw, ledger_signer=self._signer)
            self._remember(approved)
        except GatekeeperError as error:
            digest = hashlib.sha256(raw).digest()
            sql = "INSERT INTO refusals (request_hash, reason) VALUES (?, ?)"
            self._db.execute(sql, (digest, error.message))
            self._db.execute(
                "DELETE FROM refusals WHERE number <= (SELECT MAX(number) FROM refusals) - ?",
                (_MOST_REFUSALS,),
            )
            raise
        entries = approved.handover.entries
        batch = approved.handover.batch
        return msgspec.msgpack.encode([self._partial(batch, approved.handover_hash, e) for e in entries])

    def _remember(self, approved: Approved) -> None:
        """Note batch, ids and ledger before anything is decrypted; refuse what contradicts the notes."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._note(approved)
            self._db.execute("COMMIT")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise

    def _note(self, approved: Approved) -> None:
        db, batch = self._db, approved.handover.batch
        for entry in approved.ledger:
            found = db.execute("SELECT hash FROM heads WHERE entry = ?", (entry.index,)).fetchone()
            if found and found[0] != entry.hash:
                raise self._refusal(f"the ledger was forked at entry {entry.index}")
            db.execute("INSERT OR IGNORE INTO heads VALUES (?, ?)", (entry.index, entry.hash))
        (most,) = db.execute("SELECT MAX(entry) FROM heads").fetchone()
        done = db.execute("SELECT handover_hash FROM answers WHERE batch = ?", (batch,)).fetchone()
        if done:
            if done[0] != approved.handover_hash:
                raise self._refusal(f"batch {batch} was decrypted before with other content")
            return
        if most != len(approved.ledger) - 1:
            raise self._refusal("the ledger is shorter than it was")
        db.execute("INSERT INTO answers VALUES (?, ?)", (batch, approved.handover_hash))
        try:
            db.executemany("INSERT INTO ids VALUES (?, ?)", [(each, batch) for each in approved.ids])
        except sqlite3.IntegrityError as error:
            raise self._refusal("a report of this batch was in another one") from error

    def _partial(self, batch: BatchId, handover_hash: bytes, entry: Entry) -> msgspec.Raw:
        place = (batch, entry.class_id, entry.counter_set, entry.sub_batch)
        context = context_of(handover_hash, entry)
        sql = (
            "SELECT partial FROM partials "
            "WHERE batch = ? AND class_id = ? AND counter_set = ? AND sub_batch = ?"
        )
        if stored := self._db.execute(sql, place).fetchone():
            return msgspec.Raw(stored[0])
        made = msgspec.msgpack.encode(self._share.decrypt(entry.blob, self.task.profile(), context=context))
        self._db.execute("INSERT INTO partials VALUES (?, ?, ?, ?, ?)", (*place, made))
        return msgspec.Raw(made)

    def _refusal(self, why: str) -> GatekeeperError:
        return GatekeeperError(
            f"The request is refused: {why}.", remedy="Nothing: a sum is decrypted once, as it was."
        )

    def refusals(self) -> list[str]:
        """Why requests were refused, oldest first."""
        return [row[0] for row in self._db.execute("SELECT reason FROM refusals ORDER BY number")]

    def close(self) -> None:
        """Close the store."""
        self._db.close()


def application(gatekeeper: Gatekeeper) -> web.Application:
    """Routes: POST /partials with the release desk's request."""
    turn = asyncio.Lock()

    async def partials(request: web.Request) -> web.Response:
        raw = await request.read()
        async with turn:
            return binary(await asyncio.to_thread(gatekeeper.answer, raw))

    return party(web.post("/partials", partials), most_bytes=_MOST_BYTES)
