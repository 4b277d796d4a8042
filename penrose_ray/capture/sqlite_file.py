"""Profilers' SQLite files, opened read-only, also when gzipped."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import zlib
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penrose_ray.capture.files import plain
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"SQLite format 3\x00"


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to the file; any error of SQLite inside becomes a TraceError."""
    try:
        with path.open("rb") as raw:
            gzipped = raw.read(2) == b"\x1f\x8b"
        if not gzipped:
            with closing(_connect(path)) as connection:
                _check_size(path, connection)
                yield connection
            return
        with tempfile.NamedTemporaryFile(suffix=".sqlite") as copy:
            with plain(path) as stream:
                shutil.copyfileobj(stream, copy)
            copy.flush()
            with closing(_connect(Path(copy.name))) as connection:
                _check_size(Path(copy.name), connection)
                yield connection
    except (sqlite3.Error, UnicodeDecodeError, EOFError, OSError, zlib.error) as error:
        raise TraceError(
            f"{path} is a damaged SQLite file: {error}.", remedy="Export it again from the profiler's report."
        ) from error


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda text: text.decode("utf-8", "replace")
    return connection


def _check_size(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a file that ends within a page: SQLite would read zeros for what is missing."""
    (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    if path.stat().st_size % page_bytes:
        raise sqlite3.DatabaseError("it ends in the middle of a page")


def tables(connection: sqlite3.Connection) -> list[str]:
    """Names of tables and views."""
    query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
    return [name for (name,) in connection.execute(query)]


def whole(value: object) -> int:
    """A cell's whole number; 0 for NULL, text, and everything else that is none."""
    return value if isinstance(value, int) else 0


def columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Names of a table's columns."""
    return {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}
