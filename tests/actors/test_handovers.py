"""Batches are handed over when their time has come: once, one attempt at a time, again after a failure."""

from __future__ import annotations

import fcntl
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from e2e.reports import one_bin_each

from penrose_ray.actors.handovers import HandOvers, Timetable
from penrose_ray.actors.matcher import Matcher
from penrose_ray.actors.releaser import Releaser
from penrose_ray.aggregate.arrival import Arrival
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.opening import open_sums
from penrose_ray.task import sign
from penrose_ray.telemetry import HANDOVER_FAILING, RELEASE_OVERDUE
from penrose_ray.types import BatchId
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.aggregate.arrival import PartialSum
    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.task import Task

HOUR_S = 3600
DAY_S = 24 * HOUR_S
DAY = 20_000
NOON_S = DAY * DAY_S + 12 * HOUR_S
SENT = 8


class Shards:
    """One shard and a matcher on their journals, as the release desk sees them."""

    def __init__(self, matcher: Matcher, shard: ShardService) -> None:
        self._matcher, self.shard = matcher, shard

    def hold(self, *, held: bool) -> None:
        """There is nowhere to move to."""

    def batches(self) -> list[BatchId]:
        return [each.batch for each in (*self.shard.batches(), *self.shard.closed_batches())]

    def close_batch(self, batch: BatchId) -> None:
        self.shard.close_batch(batch)

    def sums(self, batch: BatchId) -> list[PartialSum]:
        return self.shard.sums(batch)

    def classes(self) -> list[SnippetClass]:
        return list(self._matcher.classes())


class World:
    """A task with batches of six hours that is handed over daily, its journals, and a clock."""

    def __init__(self, home: Path, task: Task, keys: DesignKeys, records: list[bytes]) -> None:
        self.clock = ManualClock(NOON_S)
        self._home, self.task, self._records = home, task, iter(records)
        self._signed = sign(task, keys.signing).encode()
        self._matcher = Matcher(home / "classes.sqlite", self._signed)
        self.shard = ShardService(home / "shard.sqlite", task, self.clock)

    def start(self, every_s: float = DAY_S) -> HandOvers:
        """What a service that starts has."""
        shards = Shards(self._matcher, self.shard)
        self.releaser = Releaser(self._signed, self.releases, shards, self._home / "ledger.key", self.clock)
        return HandOvers(self.releaser, Timetable.of(self.task, every_s), self.clock)

    @property
    def releases(self) -> Path:
        return self._home / "releases"

    def take(self, hours_ago: int = 0) -> BatchId:
        """A report that was made so many hours ago; its batch."""
        created_s = self.clock.now_s() - hours_ago * HOUR_S
        report = msgspec.structs.replace(decode(next(self._records)), created_hour=int(created_s // HOUR_S))
        (found,) = self._matcher.match([(report.gpu_model, report.scheme, report.signature)])
        (answer,) = self.shard.accept([Arrival.of(report, found.class_id, found.snippet_hash)])
        assert answer.outcome.acknowledged
        return self.task.batch_of(created_s)

    def purge(self) -> None:
        """What the service lets its shards do every few seconds."""
        self.shard.upkeep.note_handed_over(self.releaser.handed_over())
        self.shard.upkeep.purge()

    def released(self) -> list[int]:
        """Batches in the order in which the ledger has them."""
        return [each.batch for each in self.releaser.desk.facts() if each.kind == "release"]

    def close(self) -> None:
        self.shard.close()
        self._matcher._journal.close()


@pytest.fixture(scope="module")
def task(make_task: Callable[..., Task]) -> Task:
    return make_task(batch_s=6 * HOUR_S, min_contributors=1)


@pytest.fixture(scope="module")
def records(task: Task) -> list[bytes]:
    return one_bin_each(task, 1)[:SENT]


@pytest.fixture
def world(tmp_path: Path, task: Task, design_keys: DesignKeys, records: list[bytes]) -> Iterator[World]:
    with closing(World(tmp_path, task, design_keys, records)) as made:
        yield made


def attempt(handovers: HandOvers) -> tuple[list[int], list[int]]:
    """Tick and wait for the attempt that it began; batches handed over and those that failed."""
    handovers.tick()
    if handovers._thread:
        handovers._thread.join(300)
        assert not handovers.is_running
    ended = handovers.ended()
    return [each.batch for one in ended for each in one.handed_over], [b for one in ended for b in one.failed]


@pytest.mark.parametrize(
    ("tokens", "every_h", "batch_h", "last_hour", "handed_over_h"),
    [
        (0, 24, 24, 24, 24),  # a day's batch at midnight
        (1, 24, 24, 24, 60),  # with tokens when reports can have come no more, at noon
        (0, 24, 6, 18, 24),
        (0, 24, 6, 30, 48),
        (0, 1, 6, 18, 18),
        (0, 168, 24, 24, 168),
        (0, 0, 6, 18, 18),  # by hand: from then on
        (1, 0, 6, 18, 54),
    ],
)
def test_a_batch_goes_at_the_first_hand_over_at_which_its_last_report_can_have_come(
    make_task: Callable[..., Task],
    tokens: int,
    every_h: int,
    batch_h: int,
    last_hour: int,
    handed_over_h: int,
) -> None:
    demo = {} if tokens else {"demo": True}
    task = make_task(batch_s=batch_h * HOUR_S, tokens_per_day=tokens, hostile_clients=tokens, **demo)
    timetable = Timetable.of(task, every_h * HOUR_S)
    batch = BatchId(last_hour // batch_h - 1)
    assert timetable.time_of(batch) == handed_over_h * HOUR_S
    if every_h:
        assert timetable.next_after(handed_over_h * HOUR_S - 1) == handed_over_h * HOUR_S
        assert timetable.next_after(handed_over_h * HOUR_S) == (handed_over_h + every_h) * HOUR_S
    else:
        assert timetable.next_after(0.0) is None


def test_a_batch_is_handed_over_in_time_and_once(world: World) -> None:
    handovers = world.start()
    morning, noon = world.take(hours_ago=12), world.take()
    assert handovers.state()["last"] is None
    assert attempt(handovers) == ([], []), "its time is midnight"
    world.clock.advance(12 * HOUR_S - 1)
    assert attempt(handovers) == ([], [])
    assert handovers.state()["next_s"] == (DAY + 1) * DAY_S
    world.clock.advance(60)
    assert attempt(handovers) == ([morning, noon], [])
    world.clock.advance(60)
    evening = world.take(hours_ago=1)
    assert evening == noon + 1, "a batch that ended at midnight, and a report that came after it"
    assert attempt(handovers) == ([evening], [])
    assert world.released() == [morning, noon, evening]
    state = handovers.state()
    assert state["next_s"] == (DAY + 2) * DAY_S
    assert state["last"] == {"at_s": int(world.clock.now_s()), "batch": evening, "sums": 1, "reports": 1}


def test_what_a_service_missed_is_made_up_once(world: World, design_keys: DesignKeys) -> None:
    world.start()
    missed = [world.take(), world.take(hours_ago=6)]
    world.clock.advance(3 * DAY_S)
    today = world.take()
    handovers = world.start()
    assert attempt(handovers) == (sorted(missed), [])
    for _ in range(2):
        world.clock.advance(60)
        assert attempt(world.start()) == ([], [])
    assert world.released() == sorted(missed)
    assert today not in world.released()
    found = [world.releaser.desk.releases.find(world.task.task_id, batch) for batch in sorted(missed)]
    opened = [
        total.counts
        for each in found
        if each
        for total in open_sums(world.task, each.batch, each.entries, design_keys.paillier).sums
    ]
    assert sorted(np.sum(opened, axis=0)) == [0] * 126 + [1, 1]


def test_classes_older_than_the_shards_are_told_and_the_batch_waits_for_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handovers, batch = world.start(), world.take()
    world.clock.advance(DAY_S)
    with monkeypatch.context() as older:
        older.setattr(world._matcher, "classes", list)
        assert attempt(handovers) == ([], [batch])
        failing = handovers.state()["failing"]
        assert isinstance(failing, dict)
        assert "older than the shards' journals" in failing[str(batch)]
    world.clock.advance(3600)
    assert attempt(handovers) == ([batch], [])


def test_a_failure_is_told_tried_again_ever_later_and_holds_up_no_other_batch(world: World) -> None:
    handovers = world.start()
    first, second = world.take(hours_ago=6), world.take()
    world.clock.advance(DAY_S)
    obstacle = world.releaser.desk._prepared(first)
    obstacle.mkdir()
    assert attempt(handovers) == ([second], [first])
    assert HANDOVER_FAILING.value() == 1
    failing = handovers.state()["failing"]
    assert isinstance(failing, dict)
    assert "IsADirectoryError" in failing[str(first)]
    assert handovers.state()["next_s"] == world.clock.now_s() + 60
    for pause_s in (60, 120, 240, 480, 960, 1920, 3600, 3600):
        world.clock.advance(pause_s - 1)
        assert attempt(handovers) == ([], []), "not yet"
        world.clock.advance(1)
        handovers._look_s = 0.0
        assert attempt(handovers) == ([], [first])
    world.clock.advance(DAY_S - 3 * 3600)
    third = world.take()
    world.clock.advance(DAY_S)
    assert attempt(handovers) == ([third], [first])
    fourth = world.take(hours_ago=30)
    handovers._look_s = 0.0
    assert attempt(handovers) == ([fourth], []), "what has not failed does not wait"
    assert HANDOVER_FAILING.value() == 1
    obstacle.rmdir()
    world.clock.advance(3600)
    assert attempt(handovers) == ([first], [])
    assert HANDOVER_FAILING.value() == 0
    assert handovers.state()["failing"] == {}
    assert sorted(world.released()) == sorted([first, second, third, fourth])


def test_a_batch_whose_hand_over_fails_for_days_is_handed_over_whole(world: World) -> None:
    handovers = world.start()
    batch = world.take()
    world.clock.advance(DAY_S)
    obstacle = world.releaser.desk._prepared(batch)
    obstacle.mkdir()
    assert attempt(handovers) == ([], [batch])
    world.clock.advance(5 * DAY_S)
    world.purge()
    obstacle.rmdir()
    assert attempt(handovers) == ([batch], [])
    assert [each.reports for each in world.releaser.desk.facts() if each.kind == "release"] == [1]
    world.purge()
    assert not list(world.shard._core.journal.rows())


def test_a_damaged_hand_over_does_not_end_the_service(world: World) -> None:
    handovers = world.start()
    first = world.take()
    world.clock.advance(DAY_S)
    assert attempt(handovers) == ([first], [])
    path = world.releaser.desk.releases.path(world.task.task_id, first)
    path.with_stem(f"{path.stem} (copy)").write_bytes(path.read_bytes())
    path.write_bytes(b"damaged")
    second = world.take()
    world.clock.advance(2 * DAY_S)
    assert attempt(handovers) == ([second], [])


def test_two_never_run_at_once_by_hand_or_not(world: World) -> None:
    handovers = world.start()
    batch = world.take()
    world.clock.advance(DAY_S)
    by_hand: list[bytes] = []
    with (world.releases / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # somebody else's turn at the desk
        handovers.tick()
        running = handovers._thread
        assert running
        other = threading.Thread(target=lambda: by_hand.append(world.releaser.release(batch).encode()))
        other.start()
        world.clock.advance(DAY_S)
        handovers.tick()
        assert handovers._thread is running
        assert handovers.state()["running"]
        assert not world.releaser.desk.lines()
    other.join(300)
    running.join(300)
    (done,) = handovers.ended()
    assert [each.encode() for each in done.handed_over] == by_hand
    assert world.released() == [batch]


def test_a_service_that_ends_waits_for_the_batch_under_way_and_begins_no_other(world: World) -> None:
    handovers = world.start()
    first, second = world.take(hours_ago=6), world.take()
    world.clock.advance(DAY_S)
    with (world.releases / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        handovers.tick()
        handovers.stop(0.01)
        assert handovers.is_running
    handovers.stop(60)
    assert world.released() == [first]
    assert attempt(world.start()) == ([second], [])


def test_without_a_period_only_the_delay_is_told(world: World) -> None:
    handovers = world.start(every_s=0)
    batch = world.take()
    world.clock.advance(2 * DAY_S)
    assert attempt(handovers) == ([], [])
    assert RELEASE_OVERDUE.value() == 2 * DAY_S - 6 * HOUR_S
    assert handovers.state()["next_s"] is None
    assert world.releaser.batches() == [batch]
