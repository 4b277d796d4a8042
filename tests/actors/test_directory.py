"""Buckets move between real shards while reports arrive; shards fail in every step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.actors.directory import DirectoryService, HeldError, ShardGoneError
from penrose_ray.actors.shard import Shard
from penrose_ray.aggregate.arrival import Arrival, Outcome
from penrose_ray.aggregate.moving import StalePlacementError
from penrose_ray.aggregate.routing import Table
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import Slots, pack, unpack
from penrose_ray.errors import JournalError, JournalFullError, JournalVersionError
from penrose_ray.task import sign
from penrose_ray.types import ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

CLASS = ClassId(bytes(16))


class Shards:
    """Real shards on their journals; `fail_at` lists the calls (counted) that find the shard gone."""

    def __init__(self, home: Path, signed: bytes, names: list[str]) -> None:
        self._home, self._signed = home, signed
        self.running: dict[str, Shard] = {}
        self.calls: list[tuple[str, str]] = []
        self.fail_at: dict[int, str] = {}
        self.faults: dict[tuple[str, str], Exception] = {}
        """What calls of a shard's method raise."""
        for name in names:
            self.start(name)

    def start(self, name: str) -> None:
        self.running[name] = Shard(self._home / f"{name}.sqlite", self._signed)

    def restart(self, name: str) -> None:
        self.running[name].close()
        self.start(name)

    def __call__(self, shard: str, method: str, /, *arguments: object) -> object:
        self.calls.append((shard, method))
        when = self.fail_at.get(len(self.calls))
        if when == "before":
            self.restart(shard)
            raise ShardGoneError("gone before", remedy="again")
        if (shard, method) in self.faults:
            raise self.faults[shard, method]
        result = getattr(self.running[shard], method)(*arguments)
        if when == "after":
            self.restart(shard)
            raise ShardGoneError("gone after", remedy="again")
        return result

    def close(self) -> None:
        for shard in self.running.values():
            shard.close()


@pytest.fixture
def shards(tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys) -> Iterator[Shards]:
    task = make_task(reports_per_class=0)
    made = Shards(tmp_path, sign(task, design_keys.signing).encode(), ["a", "b", "c"])
    yield made
    made.close()


@pytest.fixture(scope="module")
def arrivals(make_task: Callable[..., Task]) -> list[Arrival]:
    """120 reports, each with one sample in a bin of its own: a double count would show as 2."""
    task = make_task(reports_per_class=0)
    encryptor = Encryptor(task.key(), task.profile(), exponent="short")
    rng = np.random.default_rng(3)
    hour = int(SystemClock().now_s() // 3600)
    made = []
    for place in range(120):
        bins = np.zeros(128, np.int64)
        bins[place] = 1
        blob = encryptor.encrypt(pack(Slots(bins, task.samples_per_histogram - 1, 1), task.profile()))
        made.append(Arrival(ReportId(rng.bytes(32)), CLASS, bytes(32), 0, hour, b"signature", blob))
    return made


def deliver(shards: Shards, table: Table, arrivals: list[Arrival]) -> list[Arrival]:
    """Send reports to their owners; returns those that a shard says are not its own."""
    lost = []
    for each in arrivals:
        (answer,) = shards.running[table.owner_of(each.report_id)].accept([each])
        if answer.outcome is Outcome.REFUSED_WRONG_OWNER:
            lost.append(each)
        else:
            assert answer.outcome.acknowledged, answer
    return lost


def bins_of(shards: Shards, keys: DesignKeys, task: Task) -> list[int]:
    total = Accumulator(task.key(), task.profile(), capacity=task.capacity())
    for shard in shards.running.values():
        for open_batch in shard.batches():
            for part in shard.sums(open_batch.batch):
                total.merge(part.blob, part.weight)
    slots = unpack(keys.paillier.decrypt(total.to_bytes(), task.profile()), task.profile())
    assert slots.real_reports == total.weight
    return slots.bins.tolist()


@pytest.mark.parametrize(
    "fault", [None, *((at, when) for at in range(3, 15) for when in ("before", "after"))]
)
def test_nothing_is_lost_or_counted_twice_whatever_fails_in_a_move(
    shards: Shards,
    arrivals: list[Arrival],
    tmp_path: Path,
    design_keys: DesignKeys,
    make_task: Callable[..., Task],
    fault: tuple[int, str] | None,
) -> None:
    service = DirectoryService(tmp_path / "directory.json", ["a", "b"], shards)
    assert deliver(shards, service.table(), arrivals[:80]) == []
    if fault:
        shards.fail_at = {len(shards.calls) + fault[0] - 2: fault[1]}

    for _ in range(4):
        try:
            table = service.place(["a", "b", "c"])
            break
        except ShardGoneError:
            continue
    else:
        pytest.fail("the move never succeeded")
    stale = Table.of(["a", "b"])
    lost = deliver(shards, stale, arrivals[80:] + arrivals[:20])
    assert lost, "some buckets have moved"
    assert deliver(shards, table, lost) == []

    assert bins_of(shards, design_keys, make_task(reports_per_class=0)) == [1] * 120 + [0] * 8


def test_a_shard_is_drained_before_it_goes(
    shards: Shards,
    arrivals: list[Arrival],
    tmp_path: Path,
    design_keys: DesignKeys,
    make_task: Callable[..., Task],
) -> None:
    service = DirectoryService(tmp_path / "directory.json", ["a", "b", "c"], shards)
    deliver(shards, service.table(), arrivals)

    table = service.place(["a", "b"])

    assert set(table.owners) == {"a", "b"}
    gone = shards.running.pop("c")
    assert gone.counts().reports == 0
    gone.close()
    assert bins_of(shards, design_keys, make_task(reports_per_class=0)) == [1] * 120 + [0] * 8


def test_a_restarted_directory_knows_its_table(shards: Shards, tmp_path: Path) -> None:
    path = tmp_path / "directory.json"
    before = DirectoryService(path, ["a", "b"], shards).place(["a", "b", "c"])
    assert DirectoryService(path, ["a", "b", "c"], shards).table() == before


def test_no_bucket_moves_while_a_release_is_made(shards: Shards, tmp_path: Path) -> None:
    service = DirectoryService(tmp_path / "directory.json", ["a", "b"], shards)
    before = service.table()
    service.hold(held=True)
    with pytest.raises(HeldError):
        service.place(["a", "b", "c"])
    service.hold(held=False)
    assert service.table() == before, "who was refused must ask again"
    assert set(service.place(["a", "b", "c"]).owners) == {"a", "b", "c"}


def test_a_release_hears_that_a_restarted_directory_held_nothing(shards: Shards, tmp_path: Path) -> None:
    path = tmp_path / "directory.json"
    DirectoryService(path, ["a", "b"], shards).hold(held=True)
    restarted = DirectoryService(path, ["a", "b"], shards)
    restarted.place(["a", "b", "c"])
    with pytest.raises(HeldError, match="restarted"):
        restarted.hold(held=False)


def test_a_shard_that_stays_away_is_given_up_and_settled_when_it_is_back(
    shards: Shards,
    arrivals: list[Arrival],
    tmp_path: Path,
    design_keys: DesignKeys,
    make_task: Callable[..., Task],
) -> None:
    service = DirectoryService(tmp_path / "directory.json", ["a", "b"], shards)
    deliver(shards, service.table(), arrivals[:80])
    shards.faults = {("c", "settle"): ShardGoneError("gone", remedy="again")}
    with pytest.raises(ShardGoneError):
        service.place(["a", "b", "c"])
    with pytest.raises(ShardGoneError):
        service.hold(held=True)
    shards.faults.clear()
    service.resume()
    assert deliver(shards, service.table(), arrivals) == []
    service.hold(held=True)
    service.hold(held=False)
    assert deliver(shards, service.place(["a", "b", "c"]), arrivals) == []
    assert bins_of(shards, design_keys, make_task(reports_per_class=0)) == [1] * 120 + [0] * 8


@pytest.mark.parametrize("method", ["seal", "export"])
@pytest.mark.parametrize("error", [JournalError("torn", remedy="-"), StalePlacementError("late")])
def test_a_move_that_fails_whatever_the_reason_is_undone(
    shards: Shards, arrivals: list[Arrival], tmp_path: Path, method: str, error: Exception
) -> None:
    service = DirectoryService(tmp_path / "directory.json", ["a", "b"], shards)
    before = service.table()
    shards.faults = {("a", method): error, ("b", method): error}
    with pytest.raises(ShardGoneError):
        service.place(["a", "b", "c"])
    assert service.table() == before
    assert deliver(shards, before, arrivals) == [], "no bucket is sealed"
    shards.faults.clear()
    assert deliver(shards, service.place(["a", "b", "c"]), arrivals) == []


def test_a_full_disk_at_the_new_owner_keeps_no_bucket_from_the_old_one(
    shards: Shards,
    arrivals: list[Arrival],
    tmp_path: Path,
    design_keys: DesignKeys,
    make_task: Callable[..., Task],
) -> None:
    service = DirectoryService(tmp_path / "directory.json", ["b", "c"], shards)
    before = service.table()
    deliver(shards, before, arrivals[:80])
    database = shards.running["a"]._service._core.journal._db
    database.execute(f"PRAGMA max_page_count = {database.execute('PRAGMA page_count').fetchone()[0]}")
    with pytest.raises((JournalFullError, ShardGoneError)):
        service.place(["a", "b", "c"])
    assert deliver(shards, before, arrivals[80:]) == []
    database.execute("PRAGMA max_page_count = 1000000")
    service.resume()
    assert deliver(shards, service.place(["a", "b", "c"]), arrivals) == []
    assert bins_of(shards, design_keys, make_task(reports_per_class=0)) == [1] * 120 + [0] * 8


def test_a_directory_that_could_not_write_goes_on_when_it_can(
    shards: Shards, arrivals: list[Arrival], tmp_path: Path
) -> None:
    folder = tmp_path / "directory"
    path = folder / "directory.json"
    service = DirectoryService(path, ["a", "b"], shards)
    away = folder.rename(tmp_path / "away")
    folder.touch()
    with pytest.raises(JournalError, match="cannot be written"):
        service.place(["a", "b", "c"])
    folder.unlink()
    away.rename(folder)
    service.resume()
    table = service.place(["a", "b", "c"])
    assert deliver(shards, table, arrivals) == []
    assert DirectoryService(path, ["a", "b", "c"], shards).table() == table


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", JournalError),
        (b'{"version": 1', JournalError),
        (b'{"version":9,"state":{"table":{"epoch":1,"owners":[]},"last_epoch":1}}', JournalVersionError),
        (b'{"version":1,"state":{"table":{"epoch":1,"owners":["a"]},"last_epoch":1}}', JournalError),
    ],
)
def test_a_damaged_or_newer_file_is_refused_and_kept(
    shards: Shards, tmp_path: Path, content: bytes, error: type[Exception]
) -> None:
    path = tmp_path / "directory.json"
    path.write_bytes(content)
    with pytest.raises(error, match=r"directory\.json"):
        DirectoryService(path, ["a"], shards)
    assert path.read_bytes() == content
