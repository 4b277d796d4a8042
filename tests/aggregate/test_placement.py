"""The directory's state machine alone, and with real shards that are killed while buckets move."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.moving import Placement, StalePlacementError
from penrose_ray.aggregate.placement import (
    Copied,
    Copy,
    Directory,
    DirectoryStateError,
    Held,
    Instruction,
    Interrupted,
    Phase,
    Seal,
    Sealed,
    Settle,
    Settled,
    Store,
    Stored,
    Wanted,
)
from penrose_ray.aggregate.routing import BUCKETS, Table, bucket_of
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.errors import JournalError
from penrose_ray.types import BucketId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.aggregate.arrival import Arrival
    from penrose_ray.aggregate.moving import Snapshot
    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

NOW_S = 1_750_000_000.0
NAMES = ("shard-0", "shard-1", "shard-2")


def settle_all(directory: Directory, instructions: list[Instruction]) -> None:
    for instruction in instructions:
        assert isinstance(instruction, Settle)
        directory.handle(Settled(instruction.shard, instruction.epoch))


def test_a_move_stores_its_intent_seals_copies_commits_and_settles() -> None:
    directory = Directory(Directory.fresh(NAMES[:1]), validate=True)
    settle_all(directory, directory.start(()))
    (store,) = directory.handle(Wanted(NAMES[:2]))
    assert store == Store(directory.state)
    (seal,) = directory.handle(Stored())
    assert isinstance(seal, Seal)
    (copy,) = directory.handle(Sealed(seal.move.epoch))
    assert copy == Copy(seal.move)
    (store,) = directory.handle(Copied(seal.move.epoch))
    assert isinstance(store, Store)
    assert store.state.table.buckets_of("shard-1") == Table.of(NAMES[:2]).buckets_of("shard-1")
    settle_all(directory, directory.handle(Stored()))
    assert directory.is_steady


def test_an_interrupted_move_goes_back_to_the_old_table() -> None:
    directory = Directory(Directory.fresh(NAMES[:1]), validate=True)
    settle_all(directory, directory.start(()))
    before = directory.state.table
    directory.handle(Wanted(NAMES[:2]))
    directory.handle(Stored())
    instructions = directory.handle(Interrupted("shard-1 is gone"))
    assert [each.shard for each in instructions if isinstance(each, Settle)] == ["shard-0", "shard-1"]
    settle_all(directory, instructions)
    assert directory.state.table == before
    assert directory.is_steady


def test_answers_of_a_past_attempt_are_ignored() -> None:
    directory = Directory(Directory.fresh(NAMES[:1]), validate=True)
    settle_all(directory, directory.start(()))
    directory.handle(Wanted(NAMES[:2]))
    directory.handle(Stored())
    assert directory.move
    past = directory.move.epoch
    settle_all(directory, directory.handle(Interrupted("gone")))
    directory.handle(Wanted(NAMES[:2]))
    directory.handle(Stored())
    assert directory.handle(Sealed(past)) == []
    assert directory.phase is Phase.SEALING


def test_a_held_directory_moves_nothing() -> None:
    directory = Directory(Directory.fresh(NAMES[:1]), validate=True)
    settle_all(directory, directory.start(()))
    directory.handle(Held(held=True))
    assert directory.handle(Wanted(NAMES[:2])) == []
    assert directory.is_steady
    assert directory.handle(Held(held=False)) == [Store(directory.state)]


def test_a_move_that_was_given_up_is_finished_and_no_other_begun() -> None:
    directory = Directory(Directory.fresh(NAMES[:1]), validate=True)
    settle_all(directory, directory.start(NAMES[:1]))
    (store,) = directory.handle(Wanted(NAMES[:2]))
    assert directory.resume() == [store]
    directory.handle(Stored())
    assert {type(each) for each in directory.resume()} == {Settle}, "undone where nothing is stored yet"
    settle_all(directory, directory.resume())
    assert directory.is_steady
    assert directory.resume() == []
    directory.handle(Wanted(NAMES[:2]))
    (seal,) = directory.handle(Stored())
    assert isinstance(seal, Seal)
    directory.handle(Sealed(seal.move.epoch))
    (store,) = directory.handle(Copied(seal.move.epoch))
    assert directory.resume() == [store]
    directory.handle(Stored())
    settle_all(directory, directory.resume())
    assert directory.is_steady
    assert directory.state.table.owners == Table.of(NAMES[:2]).owners


def test_an_event_out_of_turn_tells_the_story() -> None:
    directory = Directory(Directory.fresh(NAMES[:1]))
    with pytest.raises(DirectoryStateError, match="no move under way"):
        directory.handle(Stored())


def test_rows_that_nobody_copied_are_never_dropped(
    tmp_path: Path, task: Task, clock: ManualClock, reports: Reports
) -> None:
    with ShardService(tmp_path / "a", task, clock, placed=True, validate_states=True) as shard:
        shard.moves.settle(Placement(1, frozenset(map(BucketId, range(BUCKETS)))))
        shard.accept(reports.some(range(5)))
        with pytest.raises(JournalError, match="no other shard has copied"):
            shard.moves.settle(Placement(2, frozenset()))
        assert shard.accept(reports.some(range(6)))[5].outcome is Outcome.ACCEPTED


ALL = frozenset(map(BucketId, range(BUCKETS)))


@pytest.fixture
def pair(tmp_path: Path, task: Task, clock: ManualClock) -> Iterator[tuple[ShardService, ShardService]]:
    """A shard with all buckets and one without any."""
    with (
        ShardService(tmp_path / "a", task, clock, placed=True, validate_states=True) as source,
        ShardService(tmp_path / "b", task, clock, placed=True, validate_states=True) as target,
    ):
        source.moves.settle(Placement(1, ALL))
        target.moves.settle(Placement(1, frozenset()))
        yield source, target


def copy(source: ShardService, target: ShardService, epoch: int) -> list[Snapshot]:
    pages = [source.moves.export(ALL, epoch=epoch, most=2)]
    while (after := pages[-1].following) is not None:
        pages.append(source.moves.export(ALL, epoch=epoch, after=after, most=2))
    for page in pages:
        target.moves.receive(page)
    return pages


def test_an_old_placement_does_not_open_a_sealed_bucket(
    pair: tuple[ShardService, ShardService], reports: Reports
) -> None:
    source, _ = pair
    source.accept(reports.some(range(3)))
    source.moves.seal(ALL, epoch=2)
    with pytest.raises(StalePlacementError):
        source.moves.settle(Placement(1, ALL))
    assert source.accept([reports.one(4)])[0].outcome is Outcome.REFUSED_WRONG_OWNER


def test_pages_that_come_again_change_nothing(
    pair: tuple[ShardService, ShardService], reports: Reports
) -> None:
    source, target = pair
    source.accept(reports.some(range(5)))
    source.moves.seal(ALL, epoch=2)
    for page in copy(source, target, 2):
        target.moves.receive(page)
    target.moves.settle(Placement(2, ALL))
    source.moves.settle(Placement(2, frozenset()))
    (batch,) = target.batches()
    assert reports.hits(target.sums(batch.batch)) == Counter(range(5))
    assert source.batches() == []
    assert target.accept(reports.some(range(6)))[5].outcome is Outcome.ACCEPTED
    assert reports.hits(target.sums(batch.batch)) == Counter(range(6))


def test_a_page_that_is_missing_is_noticed(pair: tuple[ShardService, ShardService], reports: Reports) -> None:
    source, target = pair
    source.accept(reports.some(range(5)))
    source.moves.seal(ALL, epoch=2)
    first = source.moves.export(ALL, epoch=2, most=2)
    second = source.moves.export(ALL, epoch=2, after=first.following or 0, most=2)
    with pytest.raises(StalePlacementError, match="is due"):
        target.moves.receive(second)
    target.moves.receive(first)
    with pytest.raises(StalePlacementError, match="before the copy was complete"):
        target.moves.settle(Placement(2, ALL))


def test_what_has_not_settled_counts_for_nothing(
    pair: tuple[ShardService, ShardService], reports: Reports
) -> None:
    source, target = pair
    source.accept(reports.some(range(5)))
    (batch,) = source.batches()
    source.moves.seal(ALL, epoch=2)
    copy(source, target, 2)
    assert target.sums(batch.batch) == []
    assert reports.hits(source.sums(batch.batch)) == Counter(range(5))
    target.moves.settle(Placement(2, frozenset()))
    source.moves.settle(Placement(2, ALL))
    assert target.batches() == []
    assert source.accept([reports.one(6)])[0].outcome is Outcome.ACCEPTED


def test_reports_that_come_after_a_copy_was_thrown_away_outlive_a_crash(
    pair: tuple[ShardService, ShardService], task: Task, tmp_path: Path, reports: Reports, clock: ManualClock
) -> None:
    source, target = pair
    kept = frozenset({bucket_of(reports.one(number).report_id) for number in (0, 1)})
    moving = ALL - kept
    target.moves.settle(Placement(1, kept))
    source.moves.settle(Placement(1, moving))
    source.accept(reports.some(range(2, 8)))
    source.moves.seal(moving, epoch=2)
    target.accept([reports.one(0)])
    target.moves.receive(source.moves.export(moving, epoch=2))
    target.upkeep.checkpoint()
    target.moves.receive(source.moves.export(moving, epoch=3, most=1))
    target.accept([reports.one(1)])
    for suffix in ("", "-wal"):  # what a killed process leaves
        shutil.copy(tmp_path / f"b{suffix}", tmp_path / f"killed{suffix}")
    with ShardService(tmp_path / "killed", task, clock, placed=True, validate_states=True) as again:
        (batch,) = again.batches()
        assert reports.hits(again.sums(batch.batch)) == Counter(range(2))


def test_a_released_batch_stays_released_at_the_new_owner(
    pair: tuple[ShardService, ShardService], reports: Reports
) -> None:
    source, target = pair
    source.accept(reports.some(range(3)))
    (batch,) = source.batches()
    source.close_batch(batch.batch)
    source.moves.seal(ALL, epoch=2)
    copy(source, target, 2)
    target.moves.settle(Placement(2, ALL))
    target.accept([reports.one(9)])
    assert [each.batch for each in target.batches()] == [batch.batch + 1]
    assert target.accept([reports.one(0)])[0].outcome is Outcome.KNOWN


class MovingShards(RuleBasedStateMachine):
    """A sender with the newest or an old table, three shards, a directory; any of them may stop at any time.

    Messages from the directory to shards may be delivered late, twice or never.
    """

    task: Task
    reports: Reports

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock(NOW_S)
        self.stored = Directory.fresh(NAMES[:2])
        self.shards = {name: self.open(name) for name in NAMES}
        self.accepted: Counter[int] = Counter()
        self.sent: list[Arrival] = []
        self.late: list[tuple[str, Snapshot | Seal | Settle]] = []
        self.restart_directory()
        self.finish()
        self.old_table = self.stored.table

    def open(self, name: str) -> ShardService:
        return ShardService(self.folder / name, self.task, self.clock, placed=True, validate_states=True)

    def restart_directory(self) -> None:
        self.directory = Directory(self.stored, validate=True)
        self.todo = self.directory.start(NAMES)

    def finish(self) -> None:
        for _ in range(1000):
            if not self.todo:
                return
            self.carry_out()
        pytest.fail("the directory never comes to rest")

    def carry_out(self) -> None:
        instruction = self.todo.pop(0)
        if isinstance(instruction, Store):
            self.stored = instruction.state
            self.todo += self.directory.handle(Stored())
        elif isinstance(instruction, Seal):
            move = instruction.move
            self.shards[move.source].moves.seal(move.buckets, epoch=move.epoch)
            self.late.append((move.source, instruction))
            self.todo += self.directory.handle(Sealed(move.epoch))
        elif isinstance(instruction, Copy):
            self.copy(instruction)
        else:
            placement = Placement(instruction.epoch, instruction.buckets)
            self.shards[instruction.shard].moves.settle(placement)
            self.late.append((instruction.shard, instruction))
            self.todo += self.directory.handle(Settled(instruction.shard, instruction.epoch))

    def copy(self, instruction: Copy) -> None:
        move, after = instruction.move, 0
        while True:
            source = self.shards[move.source].moves
            page = source.export(move.buckets, epoch=move.epoch, after=after, most=3)
            self.shards[move.target].moves.receive(page)
            self.late.append((move.target, page))
            if page.following is None:
                break
            after = page.following
        self.todo += self.directory.handle(Copied(move.epoch))

    @rule(number=st.integers(0, 39), which=st.sampled_from(["new", "old"]))
    def send(self, number: int, which: str) -> None:
        report = self.reports.one(number, name="ab"[number % 2])
        table = self.old_table if which == "old" else self.stored.table
        (answer,) = self.shards[table.owner_of(report.report_id)].accept([report])
        assert answer.outcome in (Outcome.ACCEPTED, Outcome.KNOWN, Outcome.REFUSED_WRONG_OWNER)
        if answer.outcome is Outcome.ACCEPTED:
            self.accepted[number] += 1
        if answer.outcome is Outcome.KNOWN:
            assert self.accepted[number] == 1

    @rule(count=st.integers(1, 3))
    def want(self, count: int) -> None:
        self.old_table = self.stored.table
        self.todo += self.directory.handle(Wanted(NAMES[:count]))

    @precondition(lambda self: self.todo)
    @rule()
    def step(self) -> None:
        self.carry_out()

    @precondition(lambda self: self.late)
    @rule(which=st.integers(0, 1000))
    def deliver_again(self, which: int) -> None:
        name, message = self.late[which % len(self.late)]
        moves = self.shards[name].moves
        with contextlib.suppress(StalePlacementError):
            if isinstance(message, Seal):
                moves.seal(message.move.buckets, epoch=message.move.epoch)
            elif isinstance(message, Settle):
                moves.settle(Placement(message.epoch, message.buckets))
            else:
                moves.receive(message)

    @rule(name=st.sampled_from(NAMES))
    def kill_shard(self, name: str) -> None:
        # what a killed process had in memory is gone, and the file's lock with it
        journal = self.shards[name]._core.journal
        journal._db.close()
        os.close(journal._lock)
        self.shards[name] = self.open(name)

    @rule()
    def kill_directory(self) -> None:
        self.restart_directory()

    @rule()
    def interrupt(self) -> None:
        undo = self.directory.handle(Interrupted("no answer"))
        self.todo = undo or self.todo

    def teardown(self) -> None:
        try:
            self.finish()
            expected = Counter({number % 128: 1 for number in self.accepted})
            totals = [
                total
                for shard in self.shards.values()
                for batch in shard.batches()
                for total in shard.sums(batch.batch)
            ]
            assert self.reports.hits(totals) == expected
            assert max(self.accepted.values(), default=1) == 1
        finally:
            for shard in self.shards.values():
                shard.close()
            shutil.rmtree(self.folder)


def test_moving_buckets_lose_nothing_and_double_nothing(task: Task, reports: Reports) -> None:
    MovingShards.task, MovingShards.reports = task, reports
    run_state_machine_as_test(
        MovingShards,
        settings=settings(max_examples=25, stateful_step_count=40, deadline=None, report_multiple_bugs=False),
    )
