"""The matcher's memory: snippet classes on disk, written before anybody hears of them."""

from __future__ import annotations

import secrets
import sqlite3
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penrose_ray.durable import SQLITE_ERRORS
from penrose_ray.errors import ConfigError, JournalError, JournalVersionError
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import Signature
from penrose_ray.types import ClassId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE classes (
    number INTEGER PRIMARY KEY,
    class_id BLOB NOT NULL UNIQUE,
    gpu_model TEXT NOT NULL,
    scheme TEXT NOT NULL,
    signature BLOB NOT NULL,
    snippet_hash BLOB NOT NULL,
    alias_of BLOB
)
"""
_INSERT = "INSERT INTO classes (class_id, gpu_model, scheme, signature, snippet_hash) VALUES (?, ?, ?, ?, ?)"
_SELECT = "SELECT class_id, gpu_model, scheme, signature, snippet_hash, alias_of FROM classes ORDER BY number"
_ID_BYTES = 16
_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class SnippetClass:
    """A class of one GPU model."""

    class_id: ClassId
    gpu_model: str
    snippet_hash: bytes
    alias_of: ClassId | None = None
    """The class that this one was merged into; sums under either id belong together."""


class ClassJournal:
    """One SQLite file of all classes of a task, with an index a GPU model.

    It has one writer: while one is open, another one cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        scheme_id: str,
        similarity: float,
        *,
        new_id: Callable[[int], bytes] = secrets.token_bytes,
        wait_s: float = _WAIT_S,
    ) -> None:
        """Open or create the file, waiting up to `wait_s` for another writer to end.

        Raises:
            JournalError: it is damaged, of another scheme, in use, or cannot be opened.
            JournalVersionError: a newer version wrote it.
        """
        self._path = path
        self._scheme = scheme_id
        self._similarity = similarity
        self._new_id = new_id
        self._classes: dict[ClassId, SnippetClass] = {}
        self._indexes: dict[str, SnippetIndex[ClassId]] = {}
        try:
            self._database = _connect(path, wait_s)
            rows = self._database.execute(_SELECT).fetchall()
        except SQLITE_ERRORS as error:
            raise JournalError(
                f"The class journal {path} cannot be used: {error}.",
                remedy="End its other writer, free the disk, or restore the file from a backup.",
            ) from error
        self._rebuild(rows)

    def __len__(self) -> int:
        return len(self._classes)

    def classes(self) -> list[SnippetClass]:
        """All classes that were ever founded, the merged ones with the class that they are an alias of."""
        return list(self._classes.values())

    def match(self, wanted: Sequence[tuple[str, Signature]]) -> list[SnippetClass]:
        """Class of each (GPU model, signature); new classes are on disk before this returns.

        Raises:
            ConfigError: a signature is of another scheme; nothing was founded.
            JournalError: new classes cannot be written; none was founded.
        """
        self._require_scheme(signature for _, signature in wanted)
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

    def merge(self, kept: ClassId, gone: ClassId) -> None:
        """Make `gone` an alias of `kept`, on disk first: what matched `gone` matches `kept` from now on.

        A second time changes nothing: whoever asked may not have got the answer.

        Raises:
            ConfigError: one of them is no class or an alias already, they are one, or of two GPU models.
            JournalError: it cannot be written.
        """
        first = self._live(kept)
        if gone in self._classes and self._classes[gone].alias_of == kept:
            return
        second = self._live(gone)
        if kept == gone or first.gpu_model != second.gpu_model:
            raise ConfigError(
                f"Classes {kept.hex()} and {gone.hex()} cannot be merged.",
                remedy="Name two classes of one GPU model.",
            )
        self._execute("UPDATE classes SET alias_of = ?1 WHERE class_id = ?2 OR alias_of = ?2", kept, gone)
        for each in self._classes.values():
            if gone in (each.class_id, each.alias_of):
                self._classes[each.class_id] = replace(each, alias_of=kept)
        self._index(first.gpu_model).merge(kept, gone)

    def split(self, class_id: ClassId, signature: Signature) -> SnippetClass:
        """Found a class for what was wrongly matched to `class_id`, with `signature` as its representative.

        Signatures nearer to it than to the old class belong to the new one from now on. A class that this
        signature founded and that was merged into `class_id` is itself again; a second time changes nothing.

        Raises:
            ConfigError: `class_id` is no class or an alias, the signature is of another scheme, founded
                `class_id`, or founded a class that was merged into yet another one.
            JournalError: it cannot be written.
        """
        self._require_scheme([signature])
        old = self._live(class_id)
        if (earlier := self._founded_by(old.gpu_model, signature)) is None:
            made = self._learn(ClassId(self._new_id(_ID_BYTES)), old.gpu_model, signature)
            self._write([(made, signature)])
            self._index(old.gpu_model).forget_repeats()
            return made
        if earlier.alias_of is None and earlier != old:
            return earlier
        if earlier.alias_of != class_id:
            raise ConfigError(
                f"This snippet founded class {earlier.class_id.hex()}: it is not split off {class_id.hex()}.",
                remedy="Split the class that it was merged into.",
            )
        return self._set_apart(old, earlier)

    def _founded_by(self, gpu_model: str, signature: Signature) -> SnippetClass | None:
        digest = signature.digest()
        found = (each for each in self._classes.values() if each.snippet_hash == digest)
        return next((each for each in found if each.gpu_model == gpu_model), None)

    def _set_apart(self, old: SnippetClass, gone: SnippetClass) -> SnippetClass:
        """Undo a merge, on disk first."""
        self._execute("UPDATE classes SET alias_of = NULL WHERE class_id = ?", gone.class_id)
        made = self._classes[gone.class_id] = replace(gone, alias_of=None)
        index = self._index(old.gpu_model)
        for each in index.remove(old.class_id):
            index.add(gone.class_id if each.digest() == gone.snippet_hash else old.class_id, each)
        return made

    def close(self) -> None:
        """Release the file."""
        self._database.close()

    def _live(self, class_id: ClassId) -> SnippetClass:
        found = self._classes.get(class_id)
        if found is None or found.alias_of is not None:
            raise ConfigError(
                f"There is no class {class_id.hex()}, or it was merged into another.",
                remedy="Use a class of the list that the service prints.",
            )
        return found

    def _require_scheme(self, signatures: Iterable[Signature]) -> None:
        for each in signatures:
            if each.scheme != self._scheme:
                raise ConfigError(
                    f"A signature has scheme {each.scheme}, the task's is {self._scheme}.",
                    remedy="Compute signatures with the task's scheme.",
                )

    def _rebuild(self, rows: Sequence[tuple[bytes, str, str, bytes, bytes, bytes | None]]) -> None:
        try:
            signatures = [Signature.from_bytes(scheme, raw) for _, _, scheme, raw, _, _ in rows]
            self._require_scheme(signatures)
        except ConfigError as error:
            raise JournalError(
                f"The class journal {self._path} does not fit the task: {error.message}",
                remedy="Use the journal of this task, or restore it from a backup.",
            ) from error
        names = {row[0] for row in rows}
        for (class_id, gpu_model, _, _, digest, alias_of), signature in zip(rows, signatures, strict=True):
            if digest != signature.digest() or (alias_of and alias_of not in names):
                raise JournalError(
                    f"The class journal {self._path} is damaged: class {class_id.hex()} is not what it was.",
                    remedy="Restore the file from a backup.",
                )
            made = SnippetClass(
                ClassId(class_id), gpu_model, signature.digest(), ClassId(alias_of) if alias_of else None
            )
            self._classes[made.class_id] = made
            self._index(gpu_model).add(made.alias_of or made.class_id, signature)

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
                self._database.executemany(_INSERT, rows)
        except SQLITE_ERRORS as error:
            for made, _ in founded:
                self._index(made.gpu_model).remove(made.class_id)
                del self._classes[made.class_id]
            raise self._unwritten(error) from error

    def _execute(self, statement: str, *values: bytes) -> None:
        try:
            with self._database:
                self._database.execute(statement, values)
        except SQLITE_ERRORS as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: Exception) -> JournalError:
        return JournalError(
            f"The class journal {self._path} cannot be written: {error}.", remedy="Free space on its disk."
        )


def _connect(path: Path, wait_s: float) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    database = sqlite3.connect(path, timeout=wait_s)
    try:
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        version = _known_version(path, database)
        with database:
            database.execute("BEGIN IMMEDIATE")
            if version == 0:
                database.execute(_SCHEMA)
                database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    except BaseException:
        database.close()
        raise
    return database


def _known_version(path: Path, database: sqlite3.Connection) -> int:
    version = int(database.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise JournalVersionError(
            f"The class journal {path} has schema {version}, this program knows {SCHEMA_VERSION}.",
            remedy="Use the newer release of penrose-ray that wrote it.",
        )
    return version
