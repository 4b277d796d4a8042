"""Files that are whole or not there, and whose names survive a power cut."""

from __future__ import annotations

import os
import secrets
import sqlite3
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

SQLITE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
"""What sqlite3 raises; the latter where its message quotes a damaged file."""


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def place(path: Path, content: bytes) -> None:
    """Write a new file for its owner only.

    Raises:
        FileExistsError: the name is taken.
    """
    temporary = _written_beside(path, content, 0o600)
    try:
        os.link(temporary, path)  # unlike a rename, fails where the name is taken
    finally:
        temporary.unlink()
    sync_directory(path.parent)


def replace(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file or put another content in its place: after a crash it has the old or the new one."""
    temporary = _written_beside(path, content, mode)
    try:
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise
    sync_directory(path.parent)


def append(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Add to the end of a file, or make it; undone where it fails half way."""
    is_new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, mode)
    with os.fdopen(descriptor, "ab", buffering=0) as file:  # a buffer would write the rest when it is closed
        start = file.tell()
        try:
            while content:
                content = content[file.write(content) :]
            os.fsync(descriptor)
        except OSError:
            os.truncate(path, start)
            raise
    if is_new:
        sync_directory(path.parent)


def private_database(path: Path | None) -> sqlite3.Connection:
    """A SQLite file for its owner only, where what is deleted is gone; None keeps all in memory.

    Any thread may use it, one at a time; every statement is a transaction unless one is begun.

    Raises:
        sqlite3.Error: the file is none, or cannot be used.
    """
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    database = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
        database.execute(f"PRAGMA {pragma}")
    return database


def _written_beside(path: Path, content: bytes, mode: int) -> Path:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(descriptor)
    except BaseException:
        temporary.unlink()
        raise
    return temporary
