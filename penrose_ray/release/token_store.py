"""A client's tokens on disk: none is spent twice and none is lost, wherever the client is killed.

What is asked for is stored before it is sent, so that a client that died before the answer asks for the same
again, which costs no quota. A token is deleted, and the deletion synced, before it is handed out.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from gmpy2 import mpz

from penrose_ray.durable import SQLITE_ERRORS, private_database
from penrose_ray.errors import SpoolError
from penrose_ray.release.blind_rsa import Blinded
from penrose_ray.release.tokens import Request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from penrose_ray.release.tokens import Token
    from penrose_ray.types import TaskId

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS asked (
    task_id BLOB NOT NULL, day INTEGER NOT NULL, nonce BLOB NOT NULL, request BLOB NOT NULL,
    unblind BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS tokens (task_id BLOB NOT NULL, day INTEGER NOT NULL, token BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS filled (task_id BLOB NOT NULL, day INTEGER NOT NULL, PRIMARY KEY (task_id, day));
"""


class TokenStore:
    """Tokens of one task.

    Args:
        path: the SQLite file, made with mode 0600; None keeps all in memory.
        task_id: whose tokens.

    Raises:
        SpoolError: the file cannot be used.
    """

    def __init__(self, path: Path | None, task_id: TaskId) -> None:
        self._path = path
        self._task_id = task_id
        with self._guard():
            self._db = private_database(path)
            self._db.executescript(_TABLES)

    def filled(self, day: int) -> bool:
        """Whether the day's tokens have come."""
        sql = "SELECT 1 FROM filled WHERE task_id = ? AND day = ?"
        with self._guard():
            return self._db.execute(sql, (self._task_id, day)).fetchone() is not None

    def asked(self, day: int) -> list[Request]:
        """What was asked for on that day and is not answered."""
        sql = "SELECT nonce, request, unblind FROM asked WHERE task_id = ? AND day = ? ORDER BY rowid"
        with self._guard():
            rows = self._db.execute(sql, (self._task_id, day)).fetchall()
        return [
            Request(day, nonce, Blinded(request, mpz.from_bytes(unblind, "big")))
            for nonce, request, unblind in rows
        ]

    def ask(self, requests: Sequence[Request]) -> None:
        """Note what is about to be asked for."""
        rows = [
            (self._task_id, each.day, each.nonce, each.blinded.request, _bytes(each.blinded.unblind))
            for each in requests
        ]
        with self._guard(), self._changing():
            self._db.executemany("INSERT INTO asked VALUES (?, ?, ?, ?, ?)", rows)

    def fill(self, day: int, tokens: Sequence[Token]) -> None:
        """Keep a day's tokens in the place of what was asked for; older ones than of yesterday go."""
        rows = [(self._task_id, day, each.encode()) for each in tokens]
        with self._guard(), self._changing():
            self._db.execute("DELETE FROM asked WHERE task_id = ? AND day <= ?", (self._task_id, day))
            self._db.execute("DELETE FROM tokens WHERE task_id = ? AND day < ?", (self._task_id, day - 1))
            self._db.executemany("INSERT INTO tokens VALUES (?, ?, ?)", rows)
            self._db.execute("INSERT OR IGNORE INTO filled VALUES (?, ?)", (self._task_id, day))

    def left(self, day: int) -> int:
        """Tokens of a day."""
        sql = "SELECT COUNT(*) FROM tokens WHERE task_id = ? AND day = ?"
        with self._guard():
            return int(self._db.execute(sql, (self._task_id, day)).fetchone()[0])

    def take(self, day: int) -> bytes:
        """One token of a day, never to be taken again; IndexError when there is none."""
        sql = (
            "DELETE FROM tokens WHERE rowid = "
            "(SELECT rowid FROM tokens WHERE task_id = ? AND day = ? LIMIT 1) RETURNING token"
        )
        with self._guard():
            rows = self._db.execute(sql, (self._task_id, day)).fetchall()
        return bytes(rows[0][0])

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """All of it on disk, or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # a full disk has undone it already
                self._db.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (*SQLITE_ERRORS, OSError) as error:
            raise SpoolError(
                f"The tokens in {self._path} cannot be used: {error}.",
                remedy="Free space, or move the file away: the day's tokens are lost with it.",
            ) from error


def _bytes(number: mpz) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8, "big")
