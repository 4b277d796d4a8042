"""The shard as a pure state machine: events in, instructions out, no clock, no disk, no arithmetic.

Reports are taken in groups, one group at a time, each of distinct ids: look the ids up, judge age, check the
ciphertexts, record id and report in one transaction, then add and reply. A repeated id waits for the next
group, where the look-up finds it, so a duplicate is answered as if it had come later.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.arrival import Answer, Arrival, Outcome, Row, SumKey
from penrose_ray.aggregate.events import (
    Add,
    BatchClosed,
    Check,
    Checked,
    Event,
    Failed,
    Found,
    Instruction,
    Joined,
    Look,
    Offered,
    Placed,
    Pressed,
    Record,
    Recorded,
    Reply,
    Reweighed,
    Thinned,
)
from penrose_ray.aggregate.routing import bucket_of
from penrose_ray.aggregate.thinning import kept
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penrose_ray.task import Task
    from penrose_ray.types import BucketId, ReportId

__all__ = ["HOURS_AHEAD", "HOURS_BEHIND", "Answer", "Arrival", "Outcome", "Phase", "Shard", "ShardStateError"]

HOURS_AHEAD: Final = 1
HOURS_BEHIND: Final = 36
_HOUR_S: Final = 3600
_STORY: Final = 64


class Phase(enum.Enum):
    """What the machine waits for."""

    IDLE = "idle"
    LOOKING = "looking"
    CHECKING = "checking"
    RECORDING = "recording"


class ShardStateError(RuntimeError):
    """An event that cannot come now, or a broken invariant; the message ends with the story so far."""


@dataclass(slots=True)
class _Item:
    """One report under way."""

    request: int
    position: int
    arrival: Arrival
    now_s: float


@dataclass(slots=True)
class _Request:
    """Answers of one caller, as far as known."""

    answers: list[Answer | None]
    missing: int


@dataclass(slots=True)
class _Group:
    """Reports that are committed together."""

    waiting: dict[ReportId, _Item] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()


class Shard:
    """State of one shard apart from sums and rows.

    `group` is the most reports of one transaction, `queue` the most that may wait; `weights`, `closed` and
    `halvings` are what the journal held. `validate` checks the invariants after every event.
    """

    def __init__(
        self,
        task: Task,
        *,
        weights: Mapping[SumKey, int] | None = None,
        closed: Iterable[BatchId] = (),
        halvings: Mapping[SumKey, int] | None = None,
        group: int = 1000,
        queue: int = 100_000,
        validate: bool = False,
    ) -> None:
        self._task = task
        self._capacity = task.capacity()
        self._weights: Counter[SumKey] = Counter(weights or {})
        self._closed = set(closed)
        self._halvings = dict(halvings or {})
        self._buckets: frozenset[BucketId] | None = None
        self._pressure = ""
        self._group_limit, self._queue_limit = group, queue
        self._validate = validate
        self._phase = Phase.IDLE
        self._group = _Group()
        self._queue: deque[_Item] = deque()
        self._requests: dict[int, _Request] = {}
        self._story: deque[str] = deque(maxlen=_STORY)

    @property
    def phase(self) -> Phase:
        """What the machine waits for."""
        return self._phase

    @property
    def waiting(self) -> int:
        """Reports offered and not yet answered."""
        return len(self._queue) + len(self._group.waiting)

    @property
    def weights(self) -> Mapping[SumKey, int]:
        """Committed reports per sum."""
        return self._weights

    @property
    def closed(self) -> frozenset[BatchId]:
        """Released batches."""
        return frozenset(self._closed)

    @property
    def capacity(self) -> int:
        """Most reports that one sum holds."""
        return self._capacity

    @property
    def pressure(self) -> str:
        """Why no new report is taken for now; empty when some are."""
        return self._pressure

    @property
    def buckets(self) -> frozenset[BucketId] | None:
        """Buckets that reports are taken for; None is all of them."""
        return self._buckets

    @property
    def thinned(self) -> Mapping[SumKey, int]:
        """Halvings of the sums that have any."""
        return self._halvings

    def halvings(self, key: SumKey) -> int:
        """How often a sum's keep rate was halved."""
        return self._halvings.get(key, 0)

    def handle(self, *events: Event) -> list[Instruction]:
        """Take events in order; a group begins when all of them are taken.

        Raises:
            ShardStateError: an event does not fit the phase.
        """
        instructions: list[Instruction] = []
        for event in events:
            before = self._phase
            instructions += self._dispatch(event)
            self._story.append(f"{type(event).__name__}: {before.value} -> {self._phase.value}")
        if self._phase is Phase.IDLE and self._queue:
            instructions += self._begin()
        if self._validate:
            self._check_invariants()
        return instructions

    def _dispatch(self, event: Event) -> list[Instruction]:
        match event:
            case Offered():
                return self._offered(event)
            case Found(known):
                self._require(Phase.LOOKING, event)
                return self._found(known)
            case Checked(faults):
                self._require(Phase.CHECKING, event)
                return self._checked(faults)
            case Recorded():
                self._require(Phase.RECORDING, event)
                return self._recorded()
            case Failed(detail):
                return self._failed(detail)
        self._require(Phase.IDLE, event)
        self._change(event)
        return []

    def _change(self, event: BatchClosed | Placed | Pressed | Reweighed | Thinned | Joined) -> None:
        match event:
            case BatchClosed(batch):
                self._closed.add(batch)
            case Placed(buckets):
                self._buckets = buckets
            case Pressed(reason):
                self._pressure = reason
            case Reweighed(weights):
                self._weights.update({key: weight - self._weights[key] for key, weight in weights.items()})
                self._weights = +self._weights
            case Joined(counts):
                self._weights.update(counts)
            case Thinned(key, halvings):
                if halvings < self.halvings(key):
                    raise self._error(
                        f"a keep rate never rises: {self.halvings(key)} halvings, {halvings} asked"
                    )
                self._halvings[key] = halvings

    def _require(self, phase: Phase, event: Event) -> None:
        if self._phase is not phase:
            raise self._error(f"{type(event).__name__} came while {self._phase.value}, not {phase.value}")

    def _error(self, reason: str) -> ShardStateError:
        return ShardStateError(f"{reason}; before: {' | '.join(self._story) or 'nothing'}")

    # The way of a group: offered, found, checked, recorded.

    def _offered(self, event: Offered) -> list[Instruction]:
        if event.request in self._requests:
            raise self._error(f"request {event.request} is already open")
        if not event.arrivals:
            return [Reply(event.request, ())]
        count = len(event.arrivals)
        if self.waiting + count > self._queue_limit:
            detail = f"{self.waiting} reports wait already, {self._queue_limit} may"
            busy = tuple(Answer(each.report_id, Outcome.REFUSED_BUSY, detail) for each in event.arrivals)
            return [Reply(event.request, busy)]
        self._requests[event.request] = _Request([None] * count, count)
        self._queue.extend(
            _Item(event.request, at, arrival, event.now_s) for at, arrival in enumerate(event.arrivals)
        )
        return []

    def _begin(self) -> list[Instruction]:
        """Take the next group from the queue, a repeated id staying behind."""
        taken, left = self._group.waiting, deque[_Item]()
        replies: list[Instruction] = []
        while self._queue and len(taken) < self._group_limit:
            item = self._queue.popleft()
            report_id = item.arrival.report_id
            if self._buckets is not None and bucket_of(report_id) not in self._buckets:
                detail = f"bucket {bucket_of(report_id)} is not kept here"
                replies += self._settle(item, Outcome.REFUSED_WRONG_OWNER, detail)
            elif report_id in taken:
                left.append(item)
            else:
                taken[report_id] = item
        self._queue.extendleft(reversed(left))
        if not taken:
            return replies
        self._phase = Phase.LOOKING
        self._story.append(f"a group of {len(taken)} begins")
        return [*replies, Look(tuple(taken))]

    def _end_group(self) -> None:
        self._group = _Group()
        self._phase = Phase.IDLE

    def _found(self, known: frozenset[ReportId]) -> list[Instruction]:
        replies: list[Instruction] = []
        rows: list[Row] = []
        for report_id, item in list(self._group.waiting.items()):
            if report_id in known:
                replies += self._answer(item, Outcome.KNOWN)
                continue
            arrival = item.arrival
            batch = self.batch_for(arrival.created_hour)
            row = Row(arrival, bucket_of(report_id), SumKey(arrival.class_id, arrival.counter_set, batch))
            if refusal := self._refusal(item, row.key):
                replies += self._answer(item, *refusal)
                continue
            rows.append(row)
        if not rows:
            self._end_group()
            return replies
        self._group.rows = tuple(rows)
        self._phase = Phase.CHECKING
        return [*replies, Check(self._group.rows)]

    def _refusal(self, item: _Item, key: SumKey) -> tuple[Outcome, str] | None:
        hour, created = int(item.now_s // _HOUR_S), item.arrival.created_hour
        if created > hour + HOURS_AHEAD:
            detail = f"created in hour {created}, now is hour {hour}: at most {HOURS_AHEAD} h ahead"
            return Outcome.REFUSED_TOO_EARLY, detail
        if created < hour - HOURS_BEHIND:
            detail = f"created in hour {created}, now is hour {hour}: at most {HOURS_BEHIND} h behind"
            return Outcome.REFUSED_TOO_LATE, detail
        sets = len(self._task.counter_sets)
        if not 0 <= key.counter_set < sets:
            return Outcome.REFUSED_COUNTER_SET, f"counter set {key.counter_set}, the task has {sets}"
        if self._halvings and not kept(item.arrival.report_id, self.halvings(key)):
            return Outcome.THINNED, f"one report in {2 ** self.halvings(key)} of this class is kept"
        if self._pressure:
            return Outcome.REFUSED_BUSY, self._pressure
        return None

    def batch_for(self, created_hour: int) -> BatchId:
        """The batch that a report of that hour joins: its own, or the next one that is still open."""
        batch = self._task.batch_of(created_hour * _HOUR_S)
        while batch in self._closed:
            batch = BatchId(batch + 1)
        return batch

    def _checked(self, faults: Mapping[ReportId, str]) -> list[Instruction]:
        replies: list[Instruction] = []
        rows: list[Row] = []
        pending: Counter[SumKey] = Counter()
        for row in self._group.rows:
            report_id = row.arrival.report_id
            if report_id in faults:
                item = self._group.waiting[report_id]
                replies += self._answer(item, Outcome.REFUSED_CIPHERTEXT, faults[report_id])
                continue
            pending[row.key] += 1
            if self._weights[row.key] + pending[row.key] > self._capacity:
                detail = f"this sum holds {self._capacity} reports, all it can"
                replies += self._answer(self._group.waiting[report_id], Outcome.REFUSED_CAPACITY, detail)
                continue
            rows.append(row)
        if not rows:
            self._end_group()
            return replies
        self._group.rows = tuple(rows)
        self._phase = Phase.RECORDING
        return [*replies, Record(self._group.rows)]

    def _recorded(self) -> list[Instruction]:
        rows = self._group.rows
        replies: list[Instruction] = []
        self._weights.update(row.key for row in rows)
        for row in rows:
            replies += self._answer(self._group.waiting[row.arrival.report_id], Outcome.ACCEPTED)
        self._end_group()
        return [Add(rows), *replies]

    def _failed(self, detail: str) -> list[Instruction]:
        replies: list[Instruction] = []
        for item in list(self._group.waiting.values()):
            replies += self._answer(item, Outcome.REFUSED_BUSY, detail)
        self._end_group()
        return replies

    def _answer(self, item: _Item, outcome: Outcome, detail: str = "") -> list[Instruction]:
        """Settle one report of the group."""
        del self._group.waiting[item.arrival.report_id]
        return self._settle(item, outcome, detail)

    def _settle(self, item: _Item, outcome: Outcome, detail: str) -> list[Instruction]:
        """Note an answer; the reply comes with the last of its request."""
        request = self._requests[item.request]
        request.answers[item.position] = Answer(item.arrival.report_id, outcome, detail)
        request.missing -= 1
        if request.missing:
            return []
        del self._requests[item.request]
        return [Reply(item.request, tuple(each for each in request.answers if each))]

    def _check_invariants(self) -> None:
        unanswered = sum(request.missing for request in self._requests.values())
        if unanswered != self.waiting:
            raise self._error(f"{unanswered} answers are owed, {self.waiting} reports wait")
        if self._phase is Phase.IDLE and self.waiting:
            raise self._error(f"idle with {self.waiting} reports waiting")
        if len(self._group.waiting) > self._group_limit or self.waiting > self._queue_limit:
            raise self._error(f"{self.waiting} reports wait, {self._queue_limit} may")
        over = [key for key, weight in self._weights.items() if not 0 < weight <= self._capacity]
        if over:
            raise self._error(f"sum {over[0]} holds {self._weights[over[0]]} of {self._capacity} reports")
        if self._phase is Phase.RECORDING and len(self._group.rows) != len(self._group.waiting):
            raise self._error("rows to record and reports under way differ")
