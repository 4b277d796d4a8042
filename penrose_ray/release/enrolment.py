"""Who is enrolled: clients by name, each with a credential of which only a hash is kept."""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Final

from penrose_ray.durable import SQLITE_ERRORS
from penrose_ray.errors import ConfigError, JournalError, QuotaError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CREDENTIAL_BYTES: Final = 32
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS clients (
    credential_hash BLOB PRIMARY KEY, name TEXT NOT NULL UNIQUE
) WITHOUT ROWID;
"""


class Enrolment:
    """A list of clients in a SQLite file; any thread may use it. What counts is on disk before an answer."""

    def __init__(
        self, path: Path, tables: str = "", *, command: str = "issuer", must_exist: bool = False
    ) -> None:
        """Open or make the file.

        Args:
            path: the SQLite file.
            tables: further ones than that of the clients.
            command: of which party, named in remedies.
            must_exist: refuse to make it.

        Raises:
            ConfigError: there is no such file, or it is another party's.
            JournalError: it is no store, or cannot be written; a file that was made for it is removed.
        """
        self._command = command
        self._lock = threading.Lock()
        is_new = not path.exists()
        if is_new and must_exist:
            raise ConfigError(
                f"There is no store {path}.", remedy=f"Check the path; penrose {command} enrol makes one."
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._prepare(path, tables)
        except (OSError, *SQLITE_ERRORS) as error:
            if is_new:
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            raise JournalError(
                f"{path} cannot be used as the store of penrose {command}: {error}.",
                remedy="Check the path; free the disk or make it writable.",
            ) from error

    def _prepare(self, path: Path, tables: str) -> None:
        """Refuse what is another party's, then make what is missing."""
        names = {row[0] for row in self._db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        foreign = {"issuer": "points", "keyserver": "issued"}.get(self._command)
        if names and ("clients" not in names or foreign in names):
            self._db.close()
            raise ConfigError(
                f"{path} is no store of penrose {self._command}.", remedy="Give the file that it has made."
            )
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.executescript(_TABLE + tables)

    def enrol(self, name: str) -> bytes:
        """A new client; returns its credential.

        Raises:
            QuotaError: the name is taken.
        """
        credential = secrets.token_bytes(CREDENTIAL_BYTES)
        try:
            with self._lock:
                self._db.execute("INSERT INTO clients VALUES (?, ?)", (digest(credential), name))
        except sqlite3.IntegrityError as error:
            raise QuotaError(f"There is a client {name!r}.", remedy="Choose another name.") from error
        return credential

    def strike(self, name: str) -> None:
        """Take a client off the list.

        Raises:
            QuotaError: there is none of that name.
        """
        with self._lock:
            struck = self._db.execute("DELETE FROM clients WHERE name = ?", (name,)).rowcount
        if not struck:
            raise QuotaError(f"There is no client {name!r}.", remedy=f"See penrose {self._command} list.")

    def clients(self) -> list[str]:
        """Names of enrolled clients."""
        with self._lock:
            return [row[0] for row in self._db.execute("SELECT name FROM clients ORDER BY name")]

    def enrolled(self, credential: bytes) -> bool:
        """Whether a client has this credential."""
        with self._lock:
            return _is_enrolled(self._db, credential)

    def close(self) -> None:
        """Close the store."""
        self._db.close()

    def _require(self, cursor: sqlite3.Cursor, credential: bytes) -> None:
        if not _is_enrolled(cursor, credential):
            raise QuotaError(
                "This client is not enrolled.", remedy=f"Enrol it: penrose {self._command} enrol NAME."
            )

    @contextmanager
    def _booking(self, credential: bytes) -> Iterator[sqlite3.Cursor]:
        """A transaction for an enrolled client; nothing is booked when it raises.

        Raises:
            QuotaError: not enrolled.
        """
        with self._lock, closing(self._db.cursor()) as cursor:
            cursor.execute("BEGIN IMMEDIATE")
            try:
                self._require(cursor, credential)
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                cursor.execute("ROLLBACK")
                raise


def digest(raw: bytes) -> bytes:
    """What is stored of a secret or a request."""
    return hashlib.sha256(raw).digest()


def _is_enrolled(database: sqlite3.Connection | sqlite3.Cursor, credential: bytes) -> bool:
    row = database.execute("SELECT 1 FROM clients WHERE credential_hash = ?", (digest(credential),))
    return row.fetchone() is not None
