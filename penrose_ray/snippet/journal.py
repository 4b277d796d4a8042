"""The matcher's memory: snippet classes on disk, written before anybody hears of them."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penrose_ray.errors import JournalError, JournalVersionError
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import Signature
from penrose_ray.types import ClassId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE classes (
    class_id BLOB PRIMARY KEY,
    gpu_model TEXT NOT NULL,
    scheme TEXT NOT NULL,
    signature BLOB NOT NULL,
    snippet_hash BLOB NOT NULL
) WITHOUT ROWID
"""
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class SnippetClass:
    """A class of one GPU model."""

    class_id: ClassId
    gpu_model: str
    snippet_hash: bytes


class ClassJournal:
    """One SQLite file of all classes of a task, with an index a GPU model. It has one writer."""

    def __init__(
        self,
        path: Path,
        scheme_id: str,
        similarity: float,
        *,
        new_id: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        """Open or create the file.

        Raises:
            JournalError: it is damaged or cannot be opened.
            JournalVersionError: a newer version wrote it.
        """
        self._path = path
        self._scheme = scheme_id
        self._similarity = similarity
        self._new_id = new_id
        self._classes: dict[ClassId, SnippetClass] = {}
        self._indexes: dict[str, SnippetIndex[ClassId]] = {}
        try:
            self._database = _connect(path)
            rows = self._database.execute("SELECT * FROM classes").fetchall()
        except sqlite3.Error as error:
            raise JournalError(
                f"The class journal {path} cannot be used: {error}.",
                remedy="Free the disk or restore the file from a backup.",
            ) from error
        for class_id, gpu_model, scheme, signature, _ in rows:
            self._learn(ClassId(class_id), gpu_model, Signature.from_bytes(scheme, signature))

    def __len__(self) -> int:
        return len(self._classes)

    def classes(self) -> list[SnippetClass]:
        """All classes."""
        return list(self._classes.values())

    def match(self, wanted: Sequence[tuple[str, Signature]]) -> list[SnippetClass]:
        """Class of each (GPU model, signature); new classes are on disk before this returns."""
        found: list[SnippetClass] = []
        founded: list[tuple[SnippetClass, Signature]] = []
        for gpu_model, signature in wanted:
            if hit := self._index(gpu_model).find(signature):
                found.append(self._classes[hit[0]])
                continue
            made = self._learn(ClassId(self._new_id(_ID_BYTES)), gpu_model, signature)
            founded.append((made, signature))
            found.append(made)
        if founded:
            self._write(founded)
        return found

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def _index(self, gpu_model: str) -> SnippetIndex[ClassId]:
        if gpu_model not in self._indexes:
            self._indexes[gpu_model] = SnippetIndex(self._scheme, self._similarity)
        return self._indexes[gpu_model]

    def _learn(self, class_id: ClassId, gpu_model: str, signature: Signature) -> SnippetClass:
        self._index(gpu_model).add(class_id, signature)
        made = SnippetClass(class_id, gpu_model, signature.digest())
        self._classes[class_id] = made
        return made

    def _write(self, founded: list[tuple[SnippetClass, Signature]]) -> None:
        rows = [
            (made.class_id, made.gpu_model, signature.scheme, signature.to_bytes(), made.snippet_hash)
            for made, signature in founded
        ]
        try:
            with self._database:
                self._database.executemany("INSERT INTO classes VALUES (?, ?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            raise JournalError(
                f"The class journal {self._path} cannot be written: {error}.",
                remedy="Free space on its disk.",
            ) from error


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version > SCHEMA_VERSION:
        raise JournalVersionError(
            f"The class journal {path} has schema {version}, this program knows {SCHEMA_VERSION}.",
            remedy="Use the newer release of penrose-ray that wrote it.",
        )
    if version == 0:
        with database:
            database.execute(_SCHEMA)
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    return database
