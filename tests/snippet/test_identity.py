from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.errors import KeyFormatError, KeyMissingError, KeyPermissionError, WrongKeyError
from penrose_ray.snippet import signature
from penrose_ray.snippet.cutter import SnippetCutter
from penrose_ray.snippet.identity import PLAIN, Keyed, NameKeyFile
from penrose_ray.snippet.journal import ClassJournal
from penrose_ray.snippet.scheme import DEFAULT_SCHEME, scheme
from penrose_ray.wire import Report, encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from penrose_ray.task import Task

KEY = bytes(range(32))


class Given:
    """A source that has its key already."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    def name_key(self) -> bytes:
        return self.key


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "name.key"
    path.write_text(KEY.hex() + "\n")
    path.chmod(0o600)
    return path


def test_a_name_key_comes_from_a_private_file(key_file: Path) -> None:
    identity = Keyed(NameKeyFile(key_file), hashlib.sha256(KEY).digest())

    assert identity.name_key == KEY
    assert KEY.hex() not in repr(identity)


def test_a_name_key_that_is_not_the_task_s_is_refused(key_file: Path) -> None:
    with pytest.raises(WrongKeyError, match="is not the task's"):
        Keyed(NameKeyFile(key_file), hashlib.sha256(b"another").digest())


def test_a_key_file_that_others_can_read_is_refused(key_file: Path) -> None:
    key_file.chmod(0o640)

    with pytest.raises(KeyPermissionError, match="chmod 600"):
        NameKeyFile(key_file).name_key()


@pytest.mark.parametrize("text", ["", "zz" * 32, "00" * 31, "00" * 33, "\u00e9"])
def test_a_damaged_key_file_is_refused(key_file: Path, text: str) -> None:
    key_file.write_text(text)

    with pytest.raises(KeyFormatError, match="token issuer"):
        NameKeyFile(key_file).name_key()


def test_a_missing_key_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyMissingError, match="token issuer"):
        NameKeyFile(tmp_path / "none").name_key()


def snippet_digest(ids: NDArray[np.int64], names: list[str], key: bytes) -> bytes:
    return signature(ids, names, key=key).digest()


def test_clients_of_one_key_agree_and_nobody_else_can_look_a_program_up(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    """The dictionary of whoever has no key holds every program and finds none of them."""
    programs = [program(seed, 1000) for seed in range(20)]
    fleet = {snippet_digest(ids, names, KEY) for ids in programs}

    assert {snippet_digest(ids, names, KEY) for ids in programs} == fleet
    for guess in (b"", bytes(32), secrets.token_bytes(32)):
        assert not fleet & {snippet_digest(ids, names, guess) for ids in programs}


@pytest.mark.parametrize("scheme_id", ["g8-mended-v1", "g8-plain-v1"])
def test_no_value_of_a_keyed_signature_can_be_computed_without_the_key(
    program: Callable[..., NDArray[np.int64]], names: list[str], scheme_id: str
) -> None:
    ids = program(1, 3000)
    plain = signature(ids, names, scheme_id=scheme_id)
    keyed = signature(ids, names, scheme_id=scheme_id, key=KEY)

    assert not (plain.values == keyed.values).any(), "the shape of a program is keyed, too"


def test_nothing_that_the_services_store_contains_the_key(
    program: Callable[..., NDArray[np.int64]],
    names: list[str],
    make_task: Callable[..., Task],
    tmp_path: Path,
) -> None:
    key = secrets.token_bytes(32)
    task = make_task(
        identity="keyed", identity_key=hashlib.sha256(key).digest(), signature_scheme=DEFAULT_SCHEME
    )
    shown = signature(program(1, 1000), names, key=Keyed(Given(key), task.identity_key).name_key)
    report = Report(
        task.task_id,
        bytes(32),
        1,
        "A100",
        shown.scheme,
        shown.to_bytes(),
        0,
        bytes(task.profile().blob_bytes),
    )
    journal = ClassJournal(tmp_path / "classes.sqlite", DEFAULT_SCHEME, 0.85)
    journal.match([("A100", shown)])
    journal.close()

    stored = [task.encode(), encode(report), (tmp_path / "classes.sqlite").read_bytes()]

    task.check()
    for place in stored:
        for part in (key, key[:8], key[24:], key.hex().encode()):
            assert part not in place


@dataclass
class Columns:
    """One process on one device."""

    name_id: NDArray[np.int64]

    def __getattr__(self, column: str) -> NDArray[np.int64]:
        if column == "gap":
            return np.zeros(len(self.name_id), np.bool_)
        return np.arange(len(self.name_id)) if column == "seq" else np.zeros(len(self.name_id), np.int64)


def test_a_cutter_hashes_names_under_the_key(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    ids = program(1, 100)
    keyed = Keyed(Given(KEY), hashlib.sha256(KEY).digest())

    for identity, key in ((PLAIN, b""), (keyed, KEY)):
        (snippet,) = SnippetCutter(100, scheme(DEFAULT_SCHEME), identity).push(Columns(ids), names)
        assert snippet.signature.to_bytes() == signature(ids, names, key=key).to_bytes()
