"""Intake of reports as columns: judged by the state machine's rules, recorded as one block."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.block import OUTCOMES, BlockAnswer
from penrose_ray.aggregate.core import commit_of
from penrose_ray.aggregate.events import Joined
from penrose_ray.aggregate.shard import HOURS_AHEAD, HOURS_BEHIND
from penrose_ray.aggregate.thinning import kept

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.aggregate.block import Block
    from penrose_ray.aggregate.core import Core
    from penrose_ray.aggregate.sums import Addends
    from penrose_ray.types import BatchId

    Rows = NDArray[np.bool_] | NDArray[np.int64]

_CODE = {outcome: np.uint8(place) for place, outcome in enumerate(OUTCOMES)}


class BlockIntake:
    """Takes blocks into a shard; whoever calls holds the core's mutex.

    What is refused and why is the state machine's word (`Shard`), report by report in the same order of
    rules; a test sends the same reports both ways.
    """

    def __init__(self, core: Core) -> None:
        self._core = core

    def take(self, block: Block) -> BlockAnswer:
        """Judge a block, commit what is accepted and add it up.

        Raises:
            JournalError: nothing of it was recorded.
        """
        if not len(block):
            return BlockAnswer(np.empty(0, np.uint8), {})
        repeated = _repeated(block)
        if repeated.any():
            return self._take_apart(block, repeated)
        batch = self._core.shard.batch_for(block.created_hour)
        addends = block.addends(batch)
        judgement = _Judgement(block, addends, batch, self._core)
        judgement.judge()
        accepted = judgement.rows(Outcome.ACCEPTED)
        if len(accepted) == len(block):
            self._keep(block, addends, batch)
        elif len(accepted):
            part = block.part(accepted)
            self._keep(part, part.addends(batch), batch)
        return judgement.answer()

    def _take_apart(self, block: Block, repeated: NDArray[np.bool_]) -> BlockAnswer:
        """A repeated id waits until the first report of that id is judged."""
        codes = np.empty(len(block), np.uint8)
        details: dict[Outcome, str] = {}
        for rows in (~repeated, repeated):
            answer = self.take(block.part(rows))
            codes[rows] = answer.codes
            details |= answer.details
        return BlockAnswer(codes, details)

    def _keep(self, block: Block, addends: Addends, batch: BatchId) -> None:
        with commit_of(len(block)), self._core.journal.change() as change:
            change.insert_block(block, batch)
        self._core.shard.handle(Joined({key: len(places) for key, places in addends.groups.items()}))
        with self._core.on_disk():
            self._core.sums.add(addends)


def _repeated(block: Block) -> NDArray[np.bool_]:
    """Reports whose id came before in this block."""
    repeated = np.zeros(len(block), np.bool_)
    prefixes = np.ascontiguousarray(block.report_id[:, :8]).view("<u8").ravel()
    if len(np.unique(prefixes)) < len(prefixes):
        repeated[:] = True
        repeated[np.unique(block.report_id, axis=0, return_index=True)[1]] = False
    return repeated


class _Judgement:
    """Outcomes of a block's reports; the rules are asked last to first, so the first one has its way."""

    def __init__(self, block: Block, addends: Addends, batch: BatchId, core: Core) -> None:
        self._block, self._addends, self._batch, self._core = block, addends, batch, core
        self._codes = np.full(len(block), _CODE[Outcome.ACCEPTED], np.uint8)
        self._details: dict[Outcome, str] = {}

    def judge(self) -> None:
        """Ask every rule."""
        shard = self._core.shard
        faults = self._core.sums.check(self._addends)
        for fault in faults.values():
            self._set(np.array(list(faults), np.int64), Outcome.REFUSED_CIPHERTEXT, fault.message)
            break
        if shard.pressure:
            self._set(np.arange(len(self._block)), Outcome.REFUSED_BUSY, shard.pressure)
        self._thin()
        sets = len(self._core.task.counter_sets)
        beyond = (self._block.counter_set < 0) | (self._block.counter_set >= sets)
        self._set(beyond, Outcome.REFUSED_COUNTER_SET, f"the task has {sets} counter sets")
        self._judge_age()
        known = self._core.journal.has(self._block.report_id)
        self._set(known, Outcome.KNOWN, "")
        if shard.buckets is not None:
            owned = np.zeros(256, np.bool_)
            owned[list(shard.buckets)] = True
            self._set(~owned[self._block.report_id[:, 0]], Outcome.REFUSED_WRONG_OWNER, "not kept here")
        self._judge_room()

    def _set(self, rows: Rows, outcome: Outcome, detail: str) -> None:
        if rows.any() if rows.dtype == np.bool_ else len(rows):
            self._codes[rows] = _CODE[outcome]
            self._details[outcome] = detail

    def _judge_age(self) -> None:
        hour, created = self._core.hour(), self._block.created_hour
        everything = np.arange(len(self._block))
        if created > hour + HOURS_AHEAD:
            detail = f"created in hour {created}, now is hour {hour}: at most {HOURS_AHEAD} h ahead"
            self._set(everything, Outcome.REFUSED_TOO_EARLY, detail)
        if created < hour - HOURS_BEHIND:
            detail = f"created in hour {created}, now is hour {hour}: at most {HOURS_BEHIND} h behind"
            self._set(everything, Outcome.REFUSED_TOO_LATE, detail)

    def _thin(self) -> None:
        levels = {key: level for key, level in self._core.shard.thinned.items() if key.batch == self._batch}
        if not levels:
            return
        keys = self._block.keys(self._batch)
        for at, (report_id, key) in enumerate(zip(self._block.ids(), keys, strict=True)):
            level = levels.get(key, 0)
            if not kept(report_id, level):
                detail = f"one report in {2**level} of this class is kept"
                self._set(np.array([at]), Outcome.THINNED, detail)

    def _judge_room(self) -> None:
        """A sum takes no more reports than its slots hold."""
        accepted = self.rows(Outcome.ACCEPTED)
        capacity, weights = self._core.shard.capacity, self._core.shard.weights
        if not len(accepted) or max(weights.values(), default=0) + len(accepted) <= capacity:
            return
        for key, places in self._block.part(accepted).groups(self._batch).items():
            room = capacity - weights.get(key, 0)
            detail = f"this sum holds {capacity} reports, all it can"
            self._set(accepted[places[max(0, room) :]], Outcome.REFUSED_CAPACITY, detail)

    def rows(self, outcome: Outcome) -> NDArray[np.int64]:
        """Places of the reports with this outcome."""
        return np.flatnonzero(self._codes == _CODE[outcome])

    def answer(self) -> BlockAnswer:
        """What the sender is told."""
        return BlockAnswer(self._codes, self._details)
