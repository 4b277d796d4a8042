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
from penrose_ray.aggregate.routing import bucket_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, ReportId

__all__ = [
    "HOURS_AHEAD",
    "HOURS_BEHIND",
    "Add",
    "Answer",
    "Arrival",
    "BatchClosed",
    "Check",
    "Event",
    "Failed",
    "Found",
    "Instruction",
    "Look",
    "Offered",
    "Outcome",
    "Phase",
    "Record",
    "Recorded",
    "Reply",
    "Row",
    "Shard",
    "ShardStateError",
    "SumKey",
    "Validated",
]

HOURS_AHEAD: Final = 1
HOURS_BEHIND: Final = 36
_HOUR_S: Final = 3600
_STORY: Final = 64


@dataclass(frozen=True, slots=True)
class Offered:
    """A caller brings reports; `request` is the caller's number for the reply."""

    request: int
    arrivals: tuple[Arrival, ...]
    now_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """Which of the ids looked up are in the journal."""

    known: frozenset[ReportId]


@dataclass(frozen=True, slots=True)
class Validated:
    """Faults of the ciphertexts checked, by report id."""

    faults: Mapping[ReportId, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The rows are committed."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The journal could not be read or written: nothing of the group is committed."""

    detail: str


@dataclass(frozen=True, slots=True)
class BatchClosed:
    """A batch is released: what comes late joins the next open one."""

    batch: BatchId


Event = Offered | Found | Validated | Recorded | Failed | BatchClosed


@dataclass(frozen=True, slots=True)
class Look:
    """Look these ids up in the journal, answer with `Found` or `Failed`."""

    ids: tuple[ReportId, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """Check these reports' ciphertexts, answer with `Validated`."""

    arrivals: tuple[Arrival, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Commit these rows in one transaction, answer with `Recorded` or `Failed`."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Add:
    """Add these committed rows to their sums."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a caller: one answer per arrival, in the order offered."""

    request: int
    answers: tuple[Answer, ...]


Instruction = Look | Check | Record | Add | Reply


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

    `group` is the most reports of one transaction, `queue` the most that may wait; `weights` and `closed` are
    what the journal held. `validate` checks the invariants after every event.
    """

    def __init__(
        self,
        task: Task,
        *,
        weights: Mapping[SumKey, int] | None = None,
        closed: Iterable[BatchId] = (),
        group: int = 1000,
        queue: int = 100_000,
        validate: bool = False,
    ) -> None:
        self._task = task
        self._capacity = task.capacity()
        self._weights: Counter[SumKey] = Counter(weights or {})
        self._closed = set(closed)
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

    def story(self) -> tuple[str, ...]:
        """The last transitions, oldest first."""
        return tuple(self._story)

    def handle(self, *events: Event) -> list[Instruction]:
        """Take events in order.

        Raises:
            ShardStateError: an event does not fit the phase.
        """
        instructions: list[Instruction] = []
        for event in events:
            before = self._phase
            instructions += self._dispatch(event)
            self._story.append(f"{type(event).__name__}: {before.value} -> {self._phase.value}")
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
            case Validated(faults):
                self._require(Phase.CHECKING, event)
                return self._validated(faults)
            case Recorded():
                self._require(Phase.RECORDING, event)
                return self._recorded()
            case Failed(detail):
                return self._failed(detail)
            case BatchClosed(batch):
                self._require(Phase.IDLE, event)
                self._closed.add(batch)
                return []

    def _require(self, phase: Phase, event: Event) -> None:
        if self._phase is not phase:
            raise self._error(f"{type(event).__name__} came while {self._phase.value}, not {phase.value}")

    def _error(self, reason: str) -> ShardStateError:
        return ShardStateError(f"{reason}; before: {' | '.join(self._story) or 'nothing'}")

    # --- the way of a group ---

    def _offered(self, event: Offered) -> list[Instruction]:
        if event.request in self._requests:
            raise self._error(f"request {event.request} is already open")
        if not event.arrivals:
            return [Reply(event.request, ())]
        if self.waiting + len(event.arrivals) > self._queue_limit:
            detail = f"{self.waiting} reports wait already, {self._queue_limit} may"
            busy = tuple(Answer(each.report_id, Outcome.REFUSED_BUSY, detail) for each in event.arrivals)
            return [Reply(event.request, busy)]
        count = len(event.arrivals)
        self._requests[event.request] = _Request([None] * count, count)
        self._queue.extend(
            _Item(event.request, position, arrival, event.now_s)
            for position, arrival in enumerate(event.arrivals)
        )
        return self._begin() if self._phase is Phase.IDLE else []

    def _begin(self) -> list[Instruction]:
        """Take the next group from the queue, a repeated id staying behind."""
        self._group = _Group()
        self._phase = Phase.IDLE
        taken, left = self._group.waiting, deque[_Item]()
        while self._queue and len(taken) < self._group_limit:
            item = self._queue.popleft()
            if item.arrival.report_id in taken:
                left.append(item)
            else:
                taken[item.arrival.report_id] = item
        self._queue.extendleft(reversed(left))
        if not taken:
            return []
        self._phase = Phase.LOOKING
        return [Look(tuple(taken))]

    def _found(self, known: frozenset[ReportId]) -> list[Instruction]:
        replies: list[Instruction] = []
        for report_id, item in list(self._group.waiting.items()):
            answer = Answer(report_id, Outcome.KNOWN) if report_id in known else self._refusal(item)
            if answer:
                replies += self._answer(item, answer)
        if not self._group.waiting:
            return replies + self._begin()
        self._phase = Phase.CHECKING
        return [*replies, Check(tuple(item.arrival for item in self._group.waiting.values()))]

    def _refusal(self, item: _Item) -> Answer | None:
        arrival = item.arrival
        hour = int(item.now_s // _HOUR_S)
        if arrival.created_hour > hour + HOURS_AHEAD:
            detail = (
                f"created in hour {arrival.created_hour}, now is hour {hour}: at most {HOURS_AHEAD} h ahead"
            )
            return Answer(arrival.report_id, Outcome.REFUSED_TOO_EARLY, detail)
        if arrival.created_hour < hour - HOURS_BEHIND:
            detail = (
                f"created in hour {arrival.created_hour}, now is hour {hour}: at most {HOURS_BEHIND} h behind"
            )
            return Answer(arrival.report_id, Outcome.REFUSED_TOO_LATE, detail)
        sets = len(self._task.counter_sets)
        if not 0 <= arrival.counter_set < sets:
            detail = f"counter set {arrival.counter_set}, the task has {sets}"
            return Answer(arrival.report_id, Outcome.REFUSED_COUNTER_SET, detail)
        return None

    def _validated(self, faults: Mapping[ReportId, str]) -> list[Instruction]:
        replies: list[Instruction] = []
        rows: list[Row] = []
        pending: Counter[SumKey] = Counter()
        for report_id, item in list(self._group.waiting.items()):
            if report_id in faults:
                replies += self._answer(
                    item, Answer(report_id, Outcome.REFUSED_CIPHERTEXT, faults[report_id])
                )
                continue
            row = Row(item.arrival, bucket_of(report_id), self.batch_for(item.arrival.created_hour))
            if self._weights[row.key] + pending[row.key] >= self._capacity:
                detail = f"this sum holds {self._capacity} reports, all it can"
                replies += self._answer(item, Answer(report_id, Outcome.REFUSED_CAPACITY, detail))
                continue
            pending[row.key] += 1
            rows.append(row)
        if not rows:
            return replies + self._begin()
        self._group.rows = tuple(rows)
        self._phase = Phase.RECORDING
        return [*replies, Record(self._group.rows)]

    def batch_for(self, created_hour: int) -> BatchId:
        """The batch that a report of that hour joins: its own, or the next one that is still open."""
        batch = self._task.batch_of(created_hour * _HOUR_S)
        while batch in self._closed:
            batch = type(batch)(batch + 1)
        return batch

    def _recorded(self) -> list[Instruction]:
        rows = self._group.rows
        replies: list[Instruction] = []
        for row in rows:
            self._weights[row.key] += 1
            report_id = row.arrival.report_id
            replies += self._answer(self._group.waiting[report_id], Answer(report_id, Outcome.ACCEPTED))
        return [Add(rows), *replies, *self._begin()]

    def _failed(self, detail: str) -> list[Instruction]:
        replies: list[Instruction] = []
        for report_id, item in list(self._group.waiting.items()):
            replies += self._answer(item, Answer(report_id, Outcome.REFUSED_BUSY, detail))
        return replies + self._begin()

    def _answer(self, item: _Item, answer: Answer) -> list[Instruction]:
        """Settle one report; the reply comes with the last of its request."""
        del self._group.waiting[answer.report_id]
        request = self._requests[item.request]
        request.answers[item.position] = answer
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
        over = [key for key, weight in self._weights.items() if weight > self._capacity]
        if over:
            raise self._error(f"sum {over[0]} holds {self._weights[over[0]]} reports, {self._capacity} may")
        if self._phase is Phase.RECORDING and len(self._group.rows) != len(self._group.waiting):
            raise self._error("rows to record and reports under way differ")
