from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penrose_ray.aggregate.arrival import Arrival, Outcome, Row, SumKey
from penrose_ray.aggregate.events import (
    Add,
    BatchClosed,
    Check,
    Checked,
    Failed,
    Found,
    Look,
    Offered,
    Placed,
    Pressed,
    Record,
    Recorded,
    Reply,
    Thinned,
)
from penrose_ray.aggregate.routing import bucket_of
from penrose_ray.aggregate.shard import Phase, Shard, ShardStateError
from penrose_ray.aggregate.thinning import kept
from penrose_ray.types import BatchId, BucketId, ClassId, ReportId

if TYPE_CHECKING:
    from penrose_ray.aggregate.arrival import Answer
    from penrose_ray.aggregate.events import Event, Instruction
    from penrose_ray.task import Task

NOW_S = 1_750_000_000.0
HOUR = int(NOW_S // 3600)
CLASSES = [ClassId(bytes([number] * 16)) for number in range(3)]


def arrival(number: int, class_number: int = 0, hour: int = HOUR) -> Arrival:
    report_id = ReportId(hashlib.sha256(bytes([number])).digest())
    return Arrival(report_id, CLASSES[class_number], bytes(32), 0, hour, b"", bytes([number]))


def test_an_event_out_of_turn_tells_the_story(task: Task) -> None:
    shard = Shard(task)
    shard.handle(Offered(1, (arrival(1),), NOW_S))
    shard.handle(Found(frozenset()))
    with pytest.raises(ShardStateError, match=r"Recorded came while checking.*Offered.* a group of 1"):
        shard.handle(Recorded())


def test_a_full_queue_answers_busy_and_keeps_the_rest(task: Task) -> None:
    shard = Shard(task, queue=3, validate=True)
    shard.handle(Offered(1, tuple(arrival(number) for number in range(2)), NOW_S))
    (reply,) = shard.handle(Offered(2, tuple(arrival(number) for number in range(2, 4)), NOW_S))
    assert isinstance(reply, Reply)
    assert [answer.outcome for answer in reply.answers] == [Outcome.REFUSED_BUSY] * 2
    assert shard.waiting == 2


def test_pressure_refuses_new_reports_and_acknowledges_known_ones(task: Task) -> None:
    shard = Shard(task, validate=True)
    shard.handle(Pressed("the disk is full"))
    shard.handle(Offered(1, (arrival(1), arrival(2)), NOW_S))
    (reply,) = shard.handle(Found(frozenset({arrival(1).report_id})))
    assert isinstance(reply, Reply)
    assert [(answer.outcome, answer.detail) for answer in reply.answers] == [
        (Outcome.KNOWN, ""),
        (Outcome.REFUSED_BUSY, "the disk is full"),
    ]


def test_a_keep_rate_never_rises(task: Task) -> None:
    shard = Shard(task)
    key = SumKey(CLASSES[0], 0, BatchId(1))
    shard.handle(Thinned(key, 2))
    with pytest.raises(ShardStateError, match="never rises"):
        shard.handle(Thinned(key, 1))


class ShardStates(RuleBasedStateMachine):
    """The shell answers late, fails, and callers offer anything at any time; the journal is a dictionary."""

    task: Task

    @initialize(group=st.integers(1, 5))
    def start(self, group: int) -> None:
        self.shard = Shard(self.task, group=group, queue=40, validate=True)
        self.journal: dict[ReportId, Row] = {}
        self.added: list[ReportId] = []
        self.offers: dict[int, tuple[Arrival, ...]] = {}
        self.replies: dict[int, tuple[Answer, ...]] = {}
        self.pending: Instruction | None = None
        self.closed: set[BatchId] = set()
        self.buckets: frozenset[BucketId] | None = None
        self.acknowledged: set[ReportId] = set()

    def tell(self, *events: Event) -> None:
        self.pending = None if self.pending and not isinstance(events[0], Offered) else self.pending
        for instruction in self.shard.handle(*events):
            if isinstance(instruction, Reply):
                assert instruction.request not in self.replies
                self.replies[instruction.request] = instruction.answers
                self.check_reply(instruction)
            elif isinstance(instruction, Add):
                self.added += [row.arrival.report_id for row in instruction.rows]
            else:
                assert self.pending is None
                self.pending = instruction

    def check_reply(self, reply: Reply) -> None:
        offered = self.offers[reply.request]
        assert [answer.report_id for answer in reply.answers] == [each.report_id for each in offered]
        for answer in reply.answers:
            if answer.outcome in (Outcome.ACCEPTED, Outcome.KNOWN):
                assert answer.report_id in self.journal
                self.acknowledged.add(answer.report_id)

    @rule(
        numbers=st.lists(st.integers(0, 30), max_size=8),
        classes=st.lists(st.integers(0, 2), min_size=8, max_size=8),
        hours=st.lists(st.sampled_from([-40, -30, 0, 1, 5]), min_size=8, max_size=8),
    )
    def offer(self, numbers: list[int], classes: list[int], hours: list[int]) -> None:
        request = len(self.offers)
        self.offers[request] = tuple(
            arrival(number, class_, HOUR + hour)
            for number, class_, hour in zip(numbers, classes, hours, strict=False)
        )
        self.tell(Offered(request, self.offers[request], NOW_S))

    @precondition(lambda self: isinstance(self.pending, Look))
    @rule()
    def look(self) -> None:
        assert isinstance(self.pending, Look)
        assert len(set(self.pending.ids)) == len(self.pending.ids)
        self.tell(Found(frozenset(self.journal.keys() & set(self.pending.ids))))

    @precondition(lambda self: isinstance(self.pending, Check))
    @rule(bad=st.integers(0, 5))
    def check(self, bad: int) -> None:
        assert isinstance(self.pending, Check)
        self.tell(Checked({row.arrival.report_id: "bad" for row in self.pending.rows[bad : bad + 1]}))

    @precondition(lambda self: isinstance(self.pending, Record))
    @rule()
    def record(self) -> None:
        assert isinstance(self.pending, Record)
        for row in self.pending.rows:
            assert row.arrival.report_id not in self.journal
            assert row.key.batch not in self.closed
            self.journal[row.arrival.report_id] = row
        self.tell(Recorded())

    @precondition(lambda self: isinstance(self.pending, Look | Record))
    @rule()
    def fail(self) -> None:
        self.tell(Failed("disk full"))

    @precondition(lambda self: self.shard.phase is Phase.IDLE)
    @rule(ahead=st.integers(-2, 2))
    def close_batch(self, ahead: int) -> None:
        batch = BatchId(self.task.batch_of(NOW_S) + ahead)
        self.closed.add(batch)
        self.tell(BatchClosed(batch))

    @precondition(lambda self: self.shard.phase is Phase.IDLE)
    @rule(buckets=st.none() | st.frozensets(st.integers(0, 255), min_size=200))
    def place(self, buckets: frozenset[BucketId] | None) -> None:
        self.tell(Placed(buckets))

    @invariant()
    def each_id_is_added_once_and_is_in_the_journal(self) -> None:
        assert len(self.added) == len(set(self.added))
        assert self.acknowledged <= self.journal.keys()
        assert set(self.added) == self.journal.keys()
        assert sum(self.shard.weights.values()) == len(self.journal)

    def teardown(self) -> None:
        while self.pending:
            match self.pending:
                case Look():
                    self.look()
                case Check():
                    self.check(99)
                case Record():
                    self.record()
        assert self.replies.keys() == self.offers.keys()


def test_every_offer_is_answered_once_and_every_id_counts_once(task: Task) -> None:
    ShardStates.task = task
    run_state_machine_as_test(
        ShardStates, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )


def test_a_thinned_report_is_dropped_again_when_it_is_sent_again(task: Task) -> None:
    shard = Shard(task, validate=True)
    batch = task.batch_of(NOW_S)
    shard.handle(Thinned(SumKey(CLASSES[0], 0, batch), 1))
    arrivals = tuple(arrival(number) for number in range(20))
    for request in range(2):
        shard.handle(Offered(request, arrivals, NOW_S))
        instructions = shard.handle(Found(frozenset()))
        (checked,) = [each for each in instructions if isinstance(each, Check)]
        assert [row.arrival for row in checked.rows] == [each for each in arrivals if kept(each.report_id, 1)]
        (reply,) = shard.handle(Failed("later"))
        assert isinstance(reply, Reply)
        assert {
            answer.report_id for answer in reply.answers if answer.outcome is Outcome.THINNED
        } == {each.report_id for each in arrivals if not kept(each.report_id, 1)}  # fmt: skip


def test_a_report_of_another_shards_bucket_is_not_even_looked_up(task: Task) -> None:
    shard = Shard(task, validate=True)
    here, elsewhere = arrival(1), arrival(2)
    shard.handle(Placed(frozenset({bucket_of(here.report_id)})))
    (look,) = shard.handle(Offered(1, (elsewhere, here), NOW_S))
    assert look == Look((here.report_id,))
