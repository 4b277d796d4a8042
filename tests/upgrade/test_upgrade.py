"""What earlier versions left on disk opens; a format that changes must leave a file of the old one here."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from upgrade import make

from penrose_ray.aggregate.schema import SCHEMA_VERSION as SHARD_VERSION
from penrose_ray.crypto.secretfile import VERSION as SECRET_VERSION
from penrose_ray.snippet.journal import SCHEMA_VERSION as CLASS_VERSION
from penrose_ray.snippet.journal import ClassJournal
from penrose_ray.transport.spool import VERSION as SPOOL_VERSION
from penrose_ray.transport.spool import Spool, spool_key

TESTS = Path(__file__).parents[1]
STORED = sorted(Path(__file__).parent.glob("v*"))


@pytest.fixture(params=STORED, ids=lambda path: path.name)
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a version left."""
    folder = tmp_path / "state"
    shutil.copytree(request.param, folder)
    folder.chmod(0o700)
    (folder / "spool.key").chmod(0o600)
    return folder


def test_classes_keep_their_ids_and_what_was_merged_into_them(left: Path) -> None:
    journal = ClassJournal(left / "classes.sqlite", make.SCHEME, 0.85)
    signatures = [(make.GPU, make.signature_of(seed)) for seed in range(make.CLASSES)]
    found = [int.from_bytes(each.class_id, "big") for each in journal.match(signatures)]
    assert found == [1, 2, 1]
    assert len(journal) == make.CLASSES, "no class was founded anew"
    journal.close()


def test_reports_that_waited_are_sent_in_their_order(left: Path) -> None:
    with Spool(left / "spool.sqlite", spool_key(left / "spool.key")) as spool:
        got = []
        while waiting := spool.first(make.PUT_S + 60):
            got.append(waiting.record)
            spool.remove(waiting.number)
    assert got == list(make.RECORDS)


def test_every_earlier_version_of_every_format_has_a_stored_file() -> None:
    journals = {int(path.stem[1:]) for path in (TESTS / "aggregate" / "journals").glob("v*.journal")}
    assert journals >= set(range(1, SHARD_VERSION)), "store a journal of the version before"
    for name, latest in (("classes.sqlite", CLASS_VERSION), ("spool.sqlite", SPOOL_VERSION)):
        stored = {_version(folder / name) for folder in STORED}
        assert stored >= set(range(1, max(latest, 2))), f"store a {name} of the version before"
    assert SECRET_VERSION == 1, "tests/vectors/secret_files.json holds files of version 1"


def _version(path: Path) -> int:
    database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    (found,) = database.execute("PRAGMA user_version").fetchone()
    database.close()
    return int(found)
