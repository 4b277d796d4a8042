"""Reports that wait on disk: encrypted, bounded, there again after SIGKILL and restart.

One SQLite file (WAL, every record committed before `put` returns). A row is a number and AES-256-GCM of the
time and the record under a key from a file of its own; the number is authenticated with it. Whoever finds the
file without the key learns how many reports wait.
"""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from penrose_ray.crypto.secretfile import SPOOL_KEY, body_of, own_secret
from penrose_ray.durable import SQLITE_ERRORS
from penrose_ray.errors import SpoolError
from penrose_ray.transport.queue import Waiting

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION: Final = 1
MOST_BYTES: Final = 64 << 20
"""Some 16,000 reports."""
MOST_AGE_S: Final = 36 * 3600.0
"""The service takes no older report, and knows the ids of those it took for longer."""
KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_MOST_NUMBER: Final = 1 << 62
_HEAD: Final = struct.Struct(">d")
_PAGE_BYTES: Final = 16_384
"""Three reports a page."""
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS waiting (number INTEGER PRIMARY KEY AUTOINCREMENT, sealed BLOB NOT NULL)"
)


def spool_key(path: Path, *sealed: Path) -> bytes:
    """The key in that file; a new one is made where there is none, and nothing that it would not open.

    Args:
        path: the key file.
        sealed: SQLite files whose rows are under this key.

    Raises:
        SpoolError: the key is missing, and rows are there.
        KeyPermissionError, KeyFormatError: as `read_secret`.
    """
    if not path.exists():
        for each in sealed:
            if rows := _rows(each):
                raise SpoolError(
                    f"There is no {path}, and only that key opens the {rows} reports in {each}.",
                    remedy=f"Restore the key from a backup, or give them up: move {each} away.",
                )
    with kept(path):
        key = own_secret(path, SPOOL_KEY, lambda: secrets.token_bytes(KEY_BYTES))
    with body_of(path):
        AESGCM(key)
    return key


@contextmanager
def kept(path: Path, option: str = "--state") -> Iterator[None]:
    """Around writing a client's file: what the system refuses is a SpoolError that names the file.

    Args:
        path: the file.
        option: of the command line, which can place it elsewhere.
    """
    try:
        yield
    except OSError as error:
        raise SpoolError(
            f"{path} cannot be kept: {error.strerror or error}.",
            remedy=f"Free space, or choose another {option}.",
        ) from error


def _rows(path: Path) -> int:
    """How many rows a file's tables hold; 0 when there is no such file, or none that can be read."""
    if not path.exists():
        return 0
    with contextlib.suppress(*SQLITE_ERRORS), contextlib.closing(sqlite3.connect(path, timeout=0)) as db:
        names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return sum(
            db.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0]
            for name in names
            if not name.startswith("sqlite_")
        )
    return 0


class Spool:
    """A `Queue` on disk, for one process at a time.

    Args:
        path: the SQLite file; made with mode 0600 when missing.
        key: 32 bytes, see `spool_key`.
        most_bytes: sealed reports past it push out the oldest.
        most_age_s: older reports are dropped instead of sent.

    Raises:
        SpoolError: in use by another process, damaged, under another key, or written by a newer version.
    """

    def __init__(
        self, path: Path, key: bytes, *, most_bytes: int = MOST_BYTES, most_age_s: float = MOST_AGE_S
    ) -> None:
        self._path = path
        self._cipher = AESGCM(key)
        self._most_bytes = most_bytes
        self._most_age_s = most_age_s
        self._lock = threading.RLock()
        self.dropped = 0
        with self._guard():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)
            try:
                self._count, self._bytes, self._next = self._open()
                self._refuse_another_key()
            except BaseException:
                self._db.close()
                raise

    def __len__(self) -> int:
        return self._count

    def put(self, record: bytes, now_s: float) -> None:
        """Commit a record; the oldest go when there is no room, the new one when it has none by itself.

        Raises:
            SpoolError: the disk is full; the record is counted as dropped.
        """
        with self._lock:
            number = self._next
            sealed = self._seal(number, record, now_s)
            try:
                with self._guard(), self._db:
                    self._db.execute("BEGIN IMMEDIATE")
                    self._db.execute("INSERT INTO waiting VALUES (?, ?)", (number, sealed))
            except SpoolError:
                self.dropped += 1
                raise
            self._next, self._count, self._bytes = number + 1, self._count + 1, self._bytes + len(sealed)
            with self._guard():
                while self._bytes > self._most_bytes:
                    self._drop_oldest()

    def first(self, now_s: float) -> Waiting | None:
        """The oldest record; what is too old or does not decrypt is dropped and counted."""
        with self._lock, self._guard():
            while row := self._oldest():
                waiting, put_s = self._opened(*row)
                if waiting and now_s - put_s <= self._most_age_s:
                    return waiting
                self._drop_oldest()
            return None

    def remove(self, number: int) -> None:
        """Forget a record, if it is still there."""
        with self._lock, self._guard():
            sql = "SELECT coalesce(length(sealed), 0) FROM waiting WHERE number = ?"
            if row := self._db.execute(sql, (number,)).fetchone():
                self._db.execute("DELETE FROM waiting WHERE number = ?", (number,))
                self._count, self._bytes = self._count - 1, self._bytes - row[0]
            elif (oldest := self._oldest()) and oldest[0] == number:
                raise sqlite3.DatabaseError(f"row {number} is not where it belongs")

    def put_behind(self, number: int) -> None:
        """Let all others go before a record, whose age stays what it is.

        Raises:
            SpoolError: it is where it was.
        """
        with self._lock, self._guard():
            found = self._db.execute("SELECT sealed FROM waiting WHERE number = ?", (number,)).fetchone()
            waiting, put_s = self._opened(number, found[0]) if found else (None, 0.0)
            if waiting is None:
                return
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                self._db.execute("DELETE FROM waiting WHERE number = ?", (number,))
                sealed = self._seal(self._next, waiting.record, put_s)
                self._db.execute("INSERT INTO waiting VALUES (?, ?)", (self._next, sealed))
            self._next += 1

    def close(self) -> None:
        """Release the file."""
        with self._lock, self._guard():
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> tuple[int, int, int]:
        """Lock the file and make its table; returns count, bytes and the next number."""
        execute = self._db.execute
        execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        execute("PRAGMA secure_delete = ON")
        execute("PRAGMA journal_size_limit = 1048576")
        (version,) = execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise SpoolError(
                f"{self._path} is of version {version}; this program reads version {VERSION}.",
                remedy="Use the version of penrose-ray that wrote it, or move it away.",
            )
        execute("BEGIN IMMEDIATE")
        execute(_TABLE)
        execute(f"PRAGMA user_version = {VERSION}")
        execute("COMMIT")
        (last,) = execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
        if not isinstance(last, int) or not 0 <= last < _MOST_NUMBER:
            raise sqlite3.DatabaseError(f"its last number is {last!r}")
        count, size = execute("SELECT count(*), coalesce(sum(length(sealed)), 0) FROM waiting").fetchone()
        return count, size, last + 1

    def _refuse_another_key(self) -> None:
        """Raise when there are records and none of them opens: a damaged one is dropped, a key is not."""
        rows = self._db.execute("SELECT number, sealed FROM waiting ORDER BY number")
        if self._count and not any(self._opened(*row)[0] for row in rows):
            raise SpoolError(
                f"None of the {self._count} reports in {self._path} opens with this client's spool.key.",
                remedy=f"Restore the key that belongs to it, or give them up: move {self._path} away.",
            )

    def _oldest(self) -> tuple[int, bytes] | None:
        found: tuple[int, bytes] | None = self._db.execute(
            "SELECT number, sealed FROM waiting ORDER BY number LIMIT 1"
        ).fetchone()
        return found

    def _drop_oldest(self) -> None:
        (number,) = self._db.execute("SELECT min(number) FROM waiting").fetchone()
        if number is None:
            raise sqlite3.DatabaseError("rows that were counted are gone")
        self.remove(number)
        self.dropped += 1

    def _seal(self, number: int, record: bytes, now_s: float) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, _HEAD.pack(now_s) + record, _context(number))

    def _opened(self, number: int, sealed: bytes | str | float | None) -> tuple[Waiting | None, float]:
        if not isinstance(sealed, bytes):  # SQLite does not insist on a column's type
            return None, 0.0
        nonce, body = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            clear = self._cipher.decrypt(nonce, body, _context(number))
        except (InvalidTag, ValueError):
            return None, 0.0
        return Waiting(number, clear[_HEAD.size :]), _HEAD.unpack_from(clear)[0]

    @contextmanager
    def _guard(self) -> Iterator[None]:
        try:
            yield
        except (*SQLITE_ERRORS, OSError) as error:
            raise SpoolError(
                f"The spool {self._path} cannot be used: {error}.",
                remedy="Stop the other client that uses it, free space, or move the file away.",
            ) from error


def _context(number: int) -> bytes:
    return b"penrose spool\x01" + number.to_bytes(8, "big", signed=True)
