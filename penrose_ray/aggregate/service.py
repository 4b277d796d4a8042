"""One shard at work: the state machine, its journal and its sums. All of the shard's I/O happens here."""

from __future__ import annotations

import itertools
from collections import Counter, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from penrose_ray.aggregate.arrival import Answer, PartialSum
from penrose_ray.aggregate.block_intake import BlockIntake
from penrose_ray.aggregate.core import Core, commit_of
from penrose_ray.aggregate.entries import of_batch
from penrose_ray.aggregate.events import (
    Add,
    BatchClosed,
    Check,
    Checked,
    Event,
    Failed,
    Found,
    Instruction,
    Look,
    Offered,
    Record,
    Recorded,
    Reply,
)
from penrose_ray.aggregate.moving import Moves
from penrose_ray.aggregate.regroup import Regroup
from penrose_ray.aggregate.sub_sums import split
from penrose_ray.aggregate.sums import Addends
from penrose_ray.aggregate.thinning import keep_share
from penrose_ray.aggregate.upkeep import Upkeep
from penrose_ray.errors import JournalError
from penrose_ray.telemetry import JOURNAL_ERRORS, REPORTS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penrose_ray.aggregate.archive import Archive
    from penrose_ray.aggregate.arrival import Arrival, SumKey
    from penrose_ray.aggregate.block import Block, BlockAnswer
    from penrose_ray.clock import Clock
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, ReportId

__all__ = ["Answer", "BatchCount", "Counts", "PartialSum", "ShardService"]
_FAILED = "the shard could not take it now"


@dataclass(frozen=True, slots=True)
class BatchCount:
    """A batch and what it holds here."""

    batch: BatchId
    reports: int
    sums: int


@dataclass(frozen=True, slots=True)
class OpenSums:
    """Sums of open batches here, as load is shed by them."""

    weights: dict[SumKey, int]
    """Reports in each."""
    halvings: dict[SumKey, int]
    """How often their keep rate was halved, where it was."""
    closed: frozenset[BatchId]
    """Batches that are released."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What a shard holds and has done since it was opened."""

    reports: int
    sums: int
    open_batches: int
    released_batches: int
    outcomes: dict[str, int]


@dataclass(slots=True)
class _Call:
    """One caller of `accept`."""

    arrivals: tuple[Arrival, ...]
    answers: list[Answer] | None = None
    error: Exception | None = None
    done: bool = False


class ShardService:
    """A shard on its journal; opening it rebuilds exactly what was acknowledged.

    Safe to call from several threads. `moves` hands buckets over, `regroup` thins and splits, `upkeep` does
    what is due from time to time. `placed`: a directory places buckets, and a new shard starts without any.
    With less than `disk_mark_bytes` free, new reports are refused as busy.

    Raises:
        JournalError: the journal is damaged, of another task, or in use.
        JournalVersionError: the journal was written by a newer version.
    """

    def __init__(
        self,
        path: Path,
        task: Task,
        clock: Clock,
        *,
        placed: bool = False,
        archive: Archive | None = None,
        disk_mark_bytes: int = 0,
        validate_states: bool = False,
    ) -> None:
        self._core = Core(path, task, clock, placed=placed, validate_states=validate_states)
        self._inbox: deque[_Call] = deque()
        self._requests = itertools.count()
        self._outcomes: Counter[str] = Counter()
        self._is_closed = False
        self._blocks = BlockIntake(self._core)
        self.moves = Moves(self._core)
        self.regroup = Regroup(self._core)
        self.upkeep = Upkeep(self._core, archive, disk_mark_bytes=disk_mark_bytes)

    def known(self, ids: Sequence[ReportId]) -> set[ReportId]:
        """Which of these ids have been accepted."""
        with self._core.mutex:
            return self._core.journal.known(ids)

    def accept(self, arrivals: Sequence[Arrival]) -> list[Answer]:
        """Judge and record reports; what is acknowledged is on disk when this returns.

        Callers that wait while another one commits are committed together next.

        Raises:
            JournalError: the journal cannot be written; nothing of the group under way was recorded, and the
                caller sends again.
        """
        call = _Call(tuple(arrivals))
        self._inbox.append(call)
        with self._core.mutex:
            if not call.done:
                self._take_inbox()
        self.upkeep.after(len(call.arrivals))
        if call.error:
            raise call.error
        return call.answers or []

    def accept_block(self, block: Block) -> BlockAnswer:
        """Like `accept`, for reports that come as columns: one record of the journal, one transaction.

        Raises:
            JournalError: the journal cannot be written; nothing of the block was recorded.
        """
        with self._core.mutex:
            self._core.refresh()
            try:
                answer = self._blocks.take(block)
            except JournalError:
                JOURNAL_ERRORS.add()
                raise
            self._note({outcome.value: count for outcome, count in answer.counts().items()})
        self.upkeep.after(len(block))
        return answer

    def _take_inbox(self) -> None:
        """Serve everyone who waits."""
        calls = {next(self._requests): self._inbox.popleft() for _ in range(len(self._inbox))}
        error: Exception | None = None
        replies: dict[int, tuple[Answer, ...]] = {}
        try:
            self._core.refresh()
            now_s = self._core.clock.now_s()
            replies = self._run(*(Offered(number, call.arrivals, now_s) for number, call in calls.items()))
        except Exception as caught:  # noqa: BLE001 - raised again in each caller's thread
            error = caught
        for number, call in calls.items():
            call.done, call.error = True, error
            call.answers = list(replies.get(number, ()))
            self._note(Counter(answer.outcome.value for answer in call.answers))

    def _note(self, outcomes: Mapping[str, int]) -> None:
        self._outcomes.update(outcomes)
        for outcome, reports in outcomes.items():
            REPORTS.add(reports, stage="shard", outcome=outcome)

    def _run(self, *events: Event) -> dict[int, tuple[Answer, ...]]:
        """Carry instructions out until none is left; the replies by request."""
        replies: dict[int, tuple[Answer, ...]] = {}
        failure: Exception | None = None
        instructions = deque(self._core.shard.handle(*events))
        while instructions:
            instruction = instructions.popleft()
            if isinstance(instruction, Reply):
                replies[instruction.request] = instruction.answers
                continue
            try:
                answer = self._carry_out(instruction)
            except Exception as error:  # noqa: BLE001 - raised again when the state machine is at rest
                if isinstance(error, JournalError):
                    JOURNAL_ERRORS.add()
                failure, answer = error, Failed(_FAILED)
            if answer:
                instructions.extend(self._core.shard.handle(answer))
        if failure:
            raise failure
        return replies

    def _carry_out(self, instruction: Instruction) -> Event | None:
        match instruction:
            case Look(ids):
                return Found(frozenset(self._core.journal.known(ids)))
            case Check(rows):
                faults = self._core.sums.check(Addends.of(rows))
                return Checked({rows[at].arrival.report_id: fault.message for at, fault in faults.items()})
            case Record(rows):
                with commit_of(len(rows)):
                    self._core.journal.record(rows)
                return Recorded()
            case Add(rows):
                with self._core.on_disk():
                    self._core.sums.add(Addends.of(rows))
        return None

    def batches(self) -> list[BatchCount]:
        """Open batches that hold reports, ascending."""
        return [each for each in self._batches() if each.batch not in self._core.shard.closed]

    def closed_batches(self) -> list[BatchCount]:
        """Released batches whose sums are still here, ascending."""
        return [each for each in self._batches() if each.batch in self._core.shard.closed]

    def _batches(self) -> list[BatchCount]:
        with self._core.mutex:
            reports: Counter[BatchId] = Counter()
            sums: Counter[BatchId] = Counter()
            for key, weight in self._core.shard.weights.items():
                reports[key.batch] += weight
                sums[key.batch] += 1
        return [BatchCount(batch, reports[batch], sums[batch]) for batch in sorted(reports)]

    def sums(self, batch: BatchId) -> list[PartialSum]:
        """This shard's part of each sum of a batch, ordered by class and counter set.

        Raises:
            JournalError: the journal or the archive cannot be read.
        """
        with self._core.mutex:
            self._core.refresh()
            keys = sorted(key for key in self._core.shard.weights if key.batch == batch)
            if self._core.task.sub_batches > 1:
                rows = self._core.kept_groups(of_batch(batch))
                parts = split(self._core.task, [self._partial(key) for key in keys], rows)
            else:
                ids = self._core.journal.ids_by_key(batch)
                parts = [
                    replace(self._partial(key), ids=self._core.kept_ids(key, ids.get(key, ())))
                    for key in keys
                ]
            return parts + self.upkeep.archived(batch)

    def _partial(self, key: SumKey) -> PartialSum:
        record = self._core.sums.record(key)
        if record is None:
            raise JournalError(
                f"The journal {self._core.journal.path} lacks a sum of batch {key.batch}.",
                remedy="Stop the shard and start it again.",
            )
        share = keep_share(self._core.shard.halvings(key))
        return PartialSum(*key, record.weight, record.blob, record.id_checksum, share)

    def close_batch(self, batch: BatchId) -> None:
        """Take no more reports into a batch, for ever; a second call changes nothing.

        Raises:
            JournalError: it could not be noted; the batch is open.
        """
        with self._core.mutex:
            with self._core.journal.change() as change:
                change.release(batch, self._core.clock.now_s())
            self._run(BatchClosed(batch))

    def open_sums(self) -> OpenSums:
        """Weights and keep rates of the sums of open batches."""
        with self._core.mutex:
            closed, weights = self._core.shard.closed, self._core.shard.weights
            return OpenSums(
                {key: weight for key, weight in weights.items() if key.batch not in closed},
                {key: level for key, level in self._core.halvings.items() if key.batch not in closed},
                closed,
            )

    def counts(self) -> Counts:
        """Figures for the status command."""
        with self._core.mutex:
            weights, closed = self._core.shard.weights, self._core.shard.closed
            batches = {key.batch for key in weights}
            return Counts(
                sum(weights.values()), len(weights), len(batches - closed), len(closed), dict(self._outcomes)
            )

    def weights(self) -> dict[SumKey, int]:
        """Reports of each sum, as they stand."""
        with self._core.mutex:
            return dict(self._core.shard.weights)

    def close(self) -> None:
        """Store the sums and close the journal, once; the service is of no use afterwards.

        Raises:
            JournalError: the sums could not be stored; they will be added up again at the next opening.
        """
        with self._core.mutex:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                self.upkeep.checkpoint()
            finally:
                self._core.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
