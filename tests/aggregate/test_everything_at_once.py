"""Two shards through all that happens to them, in any order: every sum holds what it says it holds."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penrose_ray.aggregate.archive import Archive
from penrose_ray.aggregate.arrival import Outcome, SumKey
from penrose_ray.aggregate.block import OUTCOMES, Block
from penrose_ray.aggregate.moving import Placement, StalePlacementError
from penrose_ray.aggregate.routing import BUCKETS, bucket_of
from penrose_ray.aggregate.service import ShardService
from penrose_ray.aggregate.thinning import keep_share, kept
from penrose_ray.clock import ManualClock
from penrose_ray.types import BatchId, BucketId

if TYPE_CHECKING:
    from penrose_ray.aggregate.arrival import Arrival
    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

NOW_S = 1_750_000_000.0
HOUR_S = 3600
BOTH = (0, 1)
NUMBERS = st.integers(0, 39)
GROUPS = [frozenset(BucketId(bucket) for bucket in range(BUCKETS) if bucket % 4 == each) for each in range(4)]


def snippet_hash(name: str) -> bytes:
    return hashlib.sha256(hashlib.sha256(name.encode()).digest() * 2).digest()


@dataclass(frozen=True)
class Counted:
    """A report that was acknowledged: where it is, and whether its row is still there."""

    key: SumKey
    shard: int
    in_sum: bool | None = None
    """Whether it is in the sum of its key, once its row is gone."""


class Everything(RuleBasedStateMachine):
    """`where` says which shard has a group of buckets; `moving` which groups are on their way to which."""

    task: Task
    reports: Reports

    @initialize()
    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.clock = ManualClock(NOW_S)
        self.shards = [self.open(name) for name in BOTH]
        self.epoch = 1
        self.where = [0, 0, 1, 1]
        self.moving: tuple[list[int], int] | None = None
        self.sealed: list[int] = []
        self.sent: dict[int, Arrival] = {}
        self.counted: dict[int, Counted] = {}
        self.closed: set[BatchId] = set()
        self.settle()

    def open(self, name: int) -> ShardService:
        archive = Archive(str(self.folder / "cold"))
        return ShardService(
            self.folder / f"shard-{name}",
            self.task,
            self.clock,
            placed=True,
            archive=archive,
            validate_states=True,
        )

    def owned(self, shard: int) -> frozenset[BucketId]:
        return frozenset().union(*(GROUPS[each] for each in range(4) if self.where[each] == shard))

    def settle(self) -> None:
        for name, shard in enumerate(self.shards):
            shard.moves.settle(Placement(self.epoch, self.owned(name)))

    def group_of(self, arrival: Arrival) -> int:
        return bucket_of(arrival.report_id) % 4

    @rule(number=NUMBERS, name=st.sampled_from("xy"), alone=st.booleans())
    def send(self, number: int, name: str, alone: bool) -> None:  # noqa: FBT001 - hypothesis names it
        arrival, shard = self.report(number, name, alone=alone)
        (answer,) = self.shards[shard].accept([arrival])
        self.note(number, answer.outcome)

    @rule(numbers=st.sets(NUMBERS, min_size=2, max_size=6), name=st.sampled_from("xy"))
    def send_block(self, numbers: set[int], name: str) -> None:
        """New reports of one shard and hour, as a fleet sends them."""
        made = {
            number: self.report(number, name, alone=False) for number in numbers if number not in self.sent
        }
        for shard in BOTH:
            own = {number: arrival for number, (arrival, at) in made.items() if at == shard}
            if own:
                answer = self.shards[shard].accept_block(Block.of(list(own.values())))
                for number, code in zip(own, answer.codes, strict=True):
                    self.note(number, OUTCOMES[code])

    def report(self, number: int, name: str, *, alone: bool) -> tuple[Arrival, int]:
        """A report, the same at each call, and the shard that has its bucket."""
        if number not in self.sent:
            in_class = f"{name} alone" if alone else "mixed"
            hour = int(self.clock.now_s() // HOUR_S)
            self.sent[number] = self.reports.one(number, name=name, in_class=in_class, hour=hour)
        arrival = self.sent[number]
        return arrival, self.where[self.group_of(arrival)]

    def note(self, number: int, outcome: Outcome) -> None:
        arrival = self.sent[number]
        group = self.group_of(arrival)
        if group in self.sealed:
            assert outcome is Outcome.REFUSED_WRONG_OWNER
        elif outcome is Outcome.ACCEPTED:
            assert number not in self.counted
            batch = self.task.batch_of(arrival.created_hour * HOUR_S)
            while batch in self.closed:
                batch = BatchId(batch + 1)
            self.counted[number] = Counted(SumKey(arrival.class_id, 0, batch), self.where[group])
        elif number in self.counted:
            assert outcome in (Outcome.KNOWN, Outcome.REFUSED_TOO_LATE)
        else:
            assert outcome in (Outcome.THINNED, Outcome.REFUSED_TOO_LATE)

    @precondition(lambda self: self.moving is None)
    @rule(groups=st.sets(st.integers(0, 3), min_size=1), to=st.sampled_from(BOTH), complete=st.booleans())
    def begin_move(self, groups: set[int], to: int, complete: bool) -> None:  # noqa: FBT001 - as above
        moved = sorted(each for each in groups if self.where[each] != to)
        if not moved:
            return
        self.epoch += 1
        buckets = frozenset().union(*(GROUPS[each] for each in moved))
        self.moving, self.sealed = (moved, to), moved
        source = self.shards[1 - to].moves
        source.seal(buckets, epoch=self.epoch)
        after: int | None = 0
        while after is not None:
            page = source.export(buckets, epoch=self.epoch, after=after, most=3)
            self.shards[to].moves.receive(page)
            after = page.following if complete else None
        if not complete and page.following is not None:
            self.moving = ([], to)  # the copy was given up

    @precondition(lambda self: self.moving is not None)
    @rule(undo=st.booleans())
    def end_move(self, undo: bool) -> None:  # noqa: FBT001 - as above
        moved, target = self.moving or ([], 0)
        self.moving, self.sealed = None, []
        if not undo:
            for each in moved:
                self.where[each] = target
            for number, one in self.counted.items():
                if one.in_sum is None and self.group_of(self.sent[number]) in moved:
                    self.counted[number] = replace(one, shard=target)
        self.settle()

    @precondition(lambda self: self.moving is None and self.counted)
    @rule(which=st.integers(0, 1000))
    def close(self, which: int) -> None:
        batches = sorted({each.key.batch for each in self.counted.values()})
        batch = batches[which % len(batches)]
        self.closed.add(batch)
        for shard in self.shards:
            shard.close_batch(batch)

    @rule(hours=st.sampled_from([1, 12, 30, 48]))
    def wait(self, hours: int) -> None:
        self.clock.advance(hours * HOUR_S)

    @rule(name=st.sampled_from(BOTH))
    def purge(self, name: int) -> None:
        shard = self.shards[name]
        before = {row.arrival.report_id for row in shard._core.journal.rows()}
        levels = dict(shard._core.halvings)
        shard.upkeep.note_handed_over(self.closed)
        shard.upkeep.purge()
        left = {row.arrival.report_id for row in shard._core.journal.rows()}
        for number, one in self.counted.items():
            report_id = self.sent[number].report_id
            if one.shard == name and report_id in before - left:
                level = levels.get(one.key, 0)
                self.counted[number] = replace(one, in_sum=kept(report_id, level))

    @rule(name=st.sampled_from(BOTH))
    def compact(self, name: int) -> None:
        self.shards[name].upkeep.compact()

    @rule(name=st.sampled_from(BOTH))
    def checkpoint(self, name: int) -> None:
        self.shards[name].upkeep.checkpoint()

    @rule(name=st.sampled_from(BOTH))
    def kill(self, name: int) -> None:
        journal = self.shards[name]._core.journal
        journal._db.close()
        os.close(journal._lock)
        self.shards[name] = self.open(name)

    @rule(name=st.sampled_from(BOTH), which=st.integers(0, 1000))
    def thin(self, name: int, which: int) -> None:
        keys = sorted({each.key for each in self.counted.values()} - {None})
        keys = [key for key in keys if key.batch not in self.closed]
        if keys:
            key = keys[which % len(keys)]
            level = self.shards[name]._core.halvings.get(key, 0)
            self.shards[name].regroup.thin({key: level + 1})

    @precondition(lambda self: self.moving is None)
    @rule(name=st.sampled_from("xy"))
    def split(self, name: str) -> None:
        old, new = self.reports.class_id("mixed"), self.reports.class_id(f"{name} alone")
        for number, one in self.counted.items():
            is_open = one.key.batch not in self.closed
            if is_open and one.key.class_id == old and self.is_of(number, name):
                self.counted[number] = replace(one, key=one.key._replace(class_id=new))
        for shard in self.shards:
            shard.regroup.split(old, {snippet_hash(name): new})

    def is_of(self, number: int, name: str) -> bool:
        return self.sent[number].snippet_hash == snippet_hash(name)

    @rule()
    def check(self) -> None:
        for name, shard in enumerate(self.shards):
            found: dict[SumKey, Counter[int]] = {}
            batches = {each.key.batch for each in self.counted.values()}
            for batch in batches:
                for part in shard.sums(batch):
                    level = shard._core.halvings.get(part.key, 0)
                    assert part.keep_share == keep_share(level)
                    found.setdefault(part.key, Counter()).update(self.reports.hits([part]))
            assert found == self.expected(name)

    def expected(self, name: int) -> dict[SumKey, Counter[int]]:
        wanted: dict[SumKey, Counter[int]] = {}
        for number, one in self.counted.items():
            level = self.shards[name]._core.halvings.get(one.key, 0)
            is_in = kept(self.sent[number].report_id, level) if one.in_sum is None else one.in_sum
            if one.shard == name and is_in:
                wanted.setdefault(one.key, Counter())[number] += 1
        return wanted

    def teardown(self) -> None:
        try:
            if self.moving:
                self.end_move(undo=False)
            self.check()
        finally:
            for shard in self.shards:
                with contextlib.suppress(StalePlacementError):
                    shard.close()
            shutil.rmtree(self.folder)


def test_whatever_happens_every_sum_holds_what_it_says(task: Task, reports: Reports) -> None:
    Everything.task, Everything.reports = task, reports
    run_state_machine_as_test(
        Everything,
        settings=settings(max_examples=25, stateful_step_count=40, deadline=None, report_multiple_bugs=False),
    )
