"""One shard at work: the state machine, its journal and its sums. All of the shard's I/O happens here."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from penrose_ray.aggregate.arrival import Answer, PartialSum
from penrose_ray.aggregate.shard import (
    Add,
    BatchClosed,
    Check,
    Event,
    Failed,
    Found,
    Instruction,
    Look,
    Offered,
    Record,
    Recorded,
    Reply,
    Shard,
    Validated,
)
from penrose_ray.aggregate.store import Journal
from penrose_ray.aggregate.sums import Sums
from penrose_ray.crypto.accumulate import validate
from penrose_ray.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.aggregate.arrival import Arrival
    from penrose_ray.clock import Clock
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, ReportId

__all__ = ["Answer", "BatchCount", "Counts", "PartialSum", "ShardService"]

_REPLAY = 1000


@dataclass(frozen=True, slots=True)
class BatchCount:
    """An open batch and what it holds."""

    batch: BatchId
    reports: int
    sums: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What a shard holds and has done since it was opened."""

    reports: int
    sums: int
    open_batches: int
    released_batches: int
    outcomes: dict[str, int]


class ShardService:
    """A shard on its journal; opening it rebuilds exactly what was acknowledged.

    Raises:
        JournalError: the journal is damaged, of another task, or in use.
        JournalVersionError: the journal was written by a newer version.
    """

    def __init__(self, path: Path, task: Task, clock: Clock, *, validate_states: bool = False) -> None:
        self._task, self._clock = task, clock
        self._key, self._profile = task.key(), task.profile()
        self._journal = Journal(path, task.task_id)
        self._mutex = threading.Lock()
        self._requests = itertools.count()
        self._outcomes: Counter[str] = Counter()
        try:
            self._sums = self._rebuild()
        except BaseException:
            self._journal.close()
            raise
        self._shard = Shard(
            task, weights=self._sums.weights(), closed=self._journal.released(), validate=validate_states
        )

    def _rebuild(self) -> Sums:
        sums, rows = Sums(self._task), self._journal.rows()
        while part := list(itertools.islice(rows, _REPLAY)):
            sums.add(part)
        return sums

    def known(self, ids: Sequence[ReportId]) -> set[ReportId]:
        """Which of these ids have been accepted."""
        with self._mutex:
            return self._journal.known(ids)

    def accept(self, arrivals: Sequence[Arrival]) -> list[Answer]:
        """Judge and record reports; what is acknowledged is on disk when this returns.

        Raises:
            JournalError: the journal cannot be written; nothing of the group under way was recorded, and the
                caller sends again.
        """
        with self._mutex:
            request = next(self._requests)
            event = Offered(request, tuple(arrivals), self._clock.now_s())
            answers = self._run(event)[request]
            self._outcomes.update(answer.outcome.value for answer in answers)
            return list(answers)

    def _run(self, event: Event) -> dict[int, tuple[Answer, ...]]:
        """Carry instructions out until none is left; the replies by request."""
        replies: dict[int, tuple[Answer, ...]] = {}
        failure: JournalError | None = None
        instructions = deque(self._shard.handle(event))
        while instructions:
            instruction = instructions.popleft()
            if isinstance(instruction, Reply):
                replies[instruction.request] = instruction.answers
                continue
            try:
                events = self._carry_out(instruction)
            except JournalError as error:
                failure, events = error, [Failed(error.message)]
            instructions.extend(self._shard.handle(*events))
        if failure:
            raise failure
        return replies

    def _carry_out(self, instruction: Instruction) -> list[Event]:
        match instruction:
            case Look(ids):
                return [Found(frozenset(self._journal.known(ids)))]
            case Check(arrivals):
                faults = validate(self._key, self._profile, [arrival.blob for arrival in arrivals])
                return [Validated({arrivals[at].report_id: fault.message for at, fault in faults.items()})]
            case Record(rows):
                self._journal.record(rows)
                return [Recorded()]
            case Add(rows):
                self._sums.add(rows)
        return []

    def batches(self) -> list[BatchCount]:
        """Open batches that hold reports, ascending."""
        with self._mutex:
            reports: Counter[BatchId] = Counter()
            sums: Counter[BatchId] = Counter()
            for key, weight in self._shard.weights.items():
                reports[key.batch] += weight
                sums[key.batch] += 1
            closed = self._shard.closed
            return [
                BatchCount(batch, reports[batch], sums[batch])
                for batch in sorted(reports)
                if batch not in closed
            ]

    def sums(self, batch: BatchId) -> list[PartialSum]:
        """This shard's part of each sum of a batch, ordered by class and counter set."""
        with self._mutex:
            return self._sums.of(batch)

    def close_batch(self, batch: BatchId) -> None:
        """Take no more reports into a batch, for ever; a second call changes nothing."""
        with self._mutex:
            self._journal.release(batch, self._clock.now_s())
            self._run(BatchClosed(batch))

    def counts(self) -> Counts:
        """Figures for the status command."""
        with self._mutex:
            weights, closed = self._shard.weights, self._shard.closed
            batches = {key.batch for key in weights}
            return Counts(
                sum(weights.values()), len(weights), len(batches - closed), len(closed), dict(self._outcomes)
            )

    def close(self) -> None:
        """Close the journal; the service is of no use afterwards."""
        with self._mutex:
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
