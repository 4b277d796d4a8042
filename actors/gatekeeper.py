"""The gatekeeper: holds one share of a split key and decrypts its part of each released sum once.

It runs apart from the aggregation service and the design server, by a third party. Neither of them can open a
sum without it, and it can open none without them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from penrose_ray.actors.serving import binary, party
from penrose_ray.crypto.unlock import Unlock
from penrose_ray.errors import GatekeeperError, HandoverError, WrongKeyError
from penrose_ray.release.approval import context_of
from penrose_ray.release.memory import Memory

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.key_share import KeyShare
    from penrose_ray.release.handover import Entry
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId

_MOST_BYTES: Final = 256 << 20
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS partials (
    batch INTEGER NOT NULL, class_id BLOB NOT NULL, counter_set INTEGER NOT NULL, sub_batch INTEGER NOT NULL,
    partial BLOB NOT NULL, PRIMARY KEY (batch, class_id, counter_set, sub_batch)
) WITHOUT ROWID;
"""


class Gatekeeper:
    """One party's share at work.

    Args:
        share_file: the party's.
        task: verified.
        ledger_signer: the pinned key of the service's ledger, 32 bytes.
        store: what it remembers.
        passphrase_variable: environment variable that holds the share's passphrase; empty for none.

    Raises:
        WrongKeyError: the share is not of the task's key.
        KeyMissingError, KeyPermissionError, KeyFormatError: as `read_share`.
        ConfigError: a variable is not set.
    """

    def __init__(
        self,
        share_file: Path,
        task: Task,
        ledger_signer: bytes,
        store: Path,
        *,
        passphrase_variable: str = "",
    ) -> None:
        self.task = task
        self._share: KeyShare = Unlock(passphrase_variable).read_share(share_file)
        if self._share.key.public_key.fingerprint != self.task.key().fingerprint:
            raise WrongKeyError(
                "This share is not of the task's key.", remedy="Give the gatekeeper the share of this task."
            )
        self._memory = Memory(self.task, ledger_signer, store)
        self._db = self._memory.db
        self._db.executescript(_TABLES)

    def answer(self, raw: bytes) -> bytes:
        """Partial decryptions of a released batch, entry by entry; a repeat gets the same bytes.

        Raises:
            GatekeeperError: something does not agree, or was decrypted before with other content. The refusal
                is kept.
        """
        try:
            approved = self._memory.take(raw)
        except HandoverError as error:
            raise GatekeeperError(error.message, remedy=error.remedy) from error
        handover, digest = approved.handover, approved.handover_hash
        return msgspec.msgpack.encode(
            [self._partial(handover.batch, digest, entry) for entry in handover.entries]
        )

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

    def refusals(self) -> list[str]:
        """Why requests were refused, oldest first."""
        return self._memory.refusals()

    def close(self) -> None:
        """Close the store."""
        self._memory.close()


def application(gatekeeper: Gatekeeper) -> web.Application:
    """Routes: POST /partials with the release desk's request."""
    turn = asyncio.Lock()

    async def partials(request: web.Request) -> web.Response:
        raw = await request.read()
        async with turn:
            return binary(await asyncio.to_thread(gatekeeper.answer, raw))

    return party(web.post("/partials", partials), most_bytes=_MOST_BYTES)
