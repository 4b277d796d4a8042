"""Which real reports a client has made in batches that are not over yet, wherever it was killed since.

The gate counts on at most r reports of a client a class, counter set and batch, so a restart must not begin
anew. One SQLite file (WAL, every row synced before `note` returns); a row is the task's id, the batch and
AES-256-GCM of GPU model, counter set and the signature that the report carries, under the key of the spool.
Whoever finds the file without the key learns how many reports were made.
"""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penrose_ray.durable import SQLITE_ERRORS, private_database
from penrose_ray.errors import SpoolError
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.task import Task

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS sent (
    task_id BLOB NOT NULL, batch INTEGER NOT NULL, over_s INTEGER NOT NULL, sealed BLOB NOT NULL
)
"""
_NONCE_BYTES: Final = 12
_KEY_BYTES: Final = 32


class Sent(NamedTuple):
    """One real report."""

    batch: BatchId
    gpu_model: str
    counter_set: int
    signature: bytes
    """Of its class' representative, as the report carries it."""


class SentReports:
    """Real reports of one task.

    Args:
        task: whose.
        path: the SQLite file, made with mode 0600; None keeps all in memory, for what ends with its process.
        key: 32 bytes; with a file, those of `transport.spool.spool_key`.

    Raises:
        SpoolError: the file cannot be used, or is of another key.
    """

    def __init__(self, task: Task, path: Path | None = None, key: bytes = b"") -> None:
        self._task = task
        self._task_id = task.task_id
        self._path = path
        self._cipher = AESGCM(key or secrets.token_bytes(_KEY_BYTES))
        with self._guard():
            self._db = private_database(path)
            self._db.execute(_TABLE)

    def all(self) -> list[Sent]:
        """What is remembered of this task, the oldest first."""
        with self._guard():
            rows = self._db.execute(
                "SELECT batch, sealed FROM sent WHERE task_id = ? ORDER BY rowid", (self._task_id,)
            ).fetchall()
            return [self._opened(BatchId(batch), sealed) for batch, sealed in rows]

    def note(self, sent: Sent) -> None:
        """Put it on disk, before the report is sealed: killed in between, it is lost and not made twice."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        body = msgspec.msgpack.encode((sent.gpu_model, sent.counter_set, sent.signature))
        sealed = nonce + self._cipher.encrypt(nonce, body, self._context(sent.batch))
        over_s = (sent.batch + 2) * self._task.batch_s
        with self._guard():
            self._db.execute(
                "INSERT INTO sent VALUES (?, ?, ?, ?)", (self._task_id, sent.batch, over_s, sealed)
            )

    def forget(self, now_s: float) -> None:
        """Delete what no report depends on any more: of a task's batches that ended a batch ago.

        The newest one stays, so that a clock that was ahead for a while makes no batch begin anew.
        """
        newest = "(SELECT max(batch) FROM sent AS other WHERE other.task_id = sent.task_id)"
        with self._guard():
            self._db.execute(f"DELETE FROM sent WHERE over_s <= ? AND batch < {newest}", (int(now_s),))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _opened(self, batch: BatchId, sealed: bytes) -> Sent:
        nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            clear = self._cipher.decrypt(nonce, body, self._context(batch))
        except (InvalidTag, ValueError) as error:
            raise self._unusable("it does not open with the key of the spool") from error
        return Sent(batch, *msgspec.msgpack.decode(clear, type=tuple[str, int, bytes]))

    def _context(self, batch: BatchId) -> bytes:
        return b"penrose sent\x01" + self._task_id + batch.to_bytes(8, "big")

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (*SQLITE_ERRORS, OSError) as error:
            raise self._unusable(str(error)) from error

    def _unusable(self, reason: str) -> SpoolError:
        return SpoolError(
            f"The note of sent reports {self._path} cannot be used: {reason}.",
            remedy="Free space, or restore the file and its spool.key; or move it away in the next batch: "
            "earlier, reports of this one could be sent a second time.",
        )
