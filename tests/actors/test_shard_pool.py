"""Shards come and go on a running service."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from typing import TYPE_CHECKING, NoReturn

import pytest
from e2e.service_config import settings_in
from waiting import until

from penrose_ray.actors.directory import HeldError
from penrose_ray.actors.remote import ask
from penrose_ray.actors.topology import build
from penrose_ray.errors import JournalError, JournalFullError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("service")


@pytest.fixture(scope="module")
def service(home: Path, design_keys: DesignKeys) -> Iterator[Topology]:
    with build(*settings_in(home, design_keys, "service.most_shards=3")) as made:
        yield made


def owners(service: Topology) -> set[str]:
    return set(ask(service.directory.table.remote()).owners)


def test_a_shard_outlives_a_release_that_holds_its_buckets_and_goes_empty(
    service: Topology, home: Path
) -> None:
    before = set(service.pool.working)
    last = max(before)
    ask(service.directory.hold.remote(held=True))
    with pytest.raises(HeldError):
        service.pool.shrink()
    assert set(service.pool.working) == owners(service) == before
    ask(service.directory.hold.remote(held=False), 30)
    service.pool.shrink()
    assert set(service.pool.working) == owners(service) == before - {last}
    assert [path.name for path in home.rglob("drained-*.sqlite")] == [f"drained-{last}.sqlite"]


def test_a_new_shard_that_cannot_start_is_dropped_and_the_next_one_works(
    service: Topology, home: Path
) -> None:
    (first,) = home.rglob("shard-0.sqlite")
    two_at_most(service)
    before = owners(service)
    names = {f"shard-{number}" for number in range(3)} - before
    for name in names:
        (first.parent / f"{name}.sqlite").write_bytes(b"no journal" * 1000)
    service.pool.grow(1)
    until(lambda: bool(service.pool.load()) and not service.pool.pending())
    assert set(service.pool.working) == owners(service) == before
    for name in names:
        (first.parent / f"{name}.sqlite").unlink()

    def came() -> bool:
        if not service.pool.pending():
            service.pool.grow(1)
        return set(service.pool.load().busy_s) != before

    until(came)
    assert owners(service) == set(service.pool.working)


def two_at_most(service: Topology) -> None:
    """Leaves room for one more."""
    while len(service.pool.working) == 3:
        service.pool.shrink()


def two_or_more(service: Topology) -> None:
    if len(service.pool.load().busy_s) == 1:
        service.pool.grow(1)
        until(lambda: len(service.pool.load().busy_s) == 2)


def test_a_shard_with_some_of_its_buckets_takes_part_in_releases(service: Topology, home: Path) -> None:
    """A move that fails ends the placement of a new shard, which has what came before."""
    pool = service.pool
    two_at_most(service)
    two_or_more(service)
    before, locked = set(pool.working), max(pool.working)
    pool.grow(1)
    ((name, (_, ready)),) = pool._coming.items()
    ask(ready, 60)
    (journal,) = home.rglob(f"{locked}.sqlite")
    with contextlib.closing(sqlite3.connect(journal)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(JournalError, match="locked"):
            pool.load()
        assert owners(service) == {*before, name}
        assert set(pool.working) == {*before, name}
    assert set(pool.load().busy_s) == set(pool.working)
    assert not pool.pending()


def test_a_drained_shard_that_somebody_reads_leaves_no_reports_to_the_next_one(
    service: Topology, home: Path
) -> None:
    pool = service.pool
    two_or_more(service)
    last = max(pool.working)
    (journal,) = home.rglob(f"{last}.sqlite")
    with contextlib.closing(sqlite3.connect(journal)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM partial_histograms").fetchone()
        pool.shrink()
    assert not [each for each in home.rglob(f"{last}.sqlite*") if each.suffix != ".lock"]


def test_whoever_lets_no_bucket_move_is_alone(service: Topology) -> None:
    """A class that is split must not end the hold of a release that is being made."""
    parts = service.classes._parts

    def split() -> None:
        parts.hold(held=True)
        parts.hold(held=False)

    parts.hold(held=True)
    other = threading.Thread(target=split)
    other.start()
    other.join(1)
    with pytest.raises(HeldError):
        service.pool.place(list(service.pool.working))
    parts.hold(held=False)
    other.join(30)
    service.pool.place(list(service.pool.working))


def test_one_part_without_room_on_its_disk_does_not_hold_up_the_others(
    service: Topology, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_handed_over: object) -> NoReturn:
        raise JournalFullError("There is no room left.", remedy="Free space.")

    monkeypatch.setattr(service.pool, "tick", full)
    looked_s = service.scaler._at_s
    service.tend()
    assert service.scaler._at_s != looked_s
    assert "no room left" in caplog.text
