"""A fleet's reports on their way through matcher and shards, and the truth beside them.

Nothing here needs Ray: a `Route` stands for matcher and shards wherever they run.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np

from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.block import OUTCOMES, Block, matrix
from penrose_ray.errors import PenroseError, TransportError
from penrose_ray.histogram import BINS
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from penrose_ray.actors.fleet import EncryptsMany, ReportBatch
    from penrose_ray.aggregate.block import BlockAnswer
    from penrose_ray.aggregate.routing import Table
    from penrose_ray.crypto.packing import Slots
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.types import ClassId

_WINDOW: Final = 6
"""Messages under way: a shard finds its next one when it has committed one."""
_ATTEMPTS: Final = 50
_PAUSE_S: Final = 0.2
_CLASS_BYTES, _HASH_BYTES = 16, 32


class Route(Protocol):
    """Matcher and shards."""

    def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        """Class of each (GPU model, scheme, signature)."""
        ...

    def table(self) -> Table:
        """Who keeps which bucket now."""
        ...

    def offer(self, shard: str, block: Block) -> object:
        """Send a block; returns what `answer` waits for."""
        ...

    def answer(self, pending: object) -> BlockAnswer:
        """Wait for a shard's answer.

        Raises:
            PenroseError: the shard cannot take the block now; nothing is known of it.
        """
        ...


class Pair(NamedTuple):
    """What one sum of a batch is over."""

    class_id: ClassId
    counter_set: int


@dataclass(eq=False)
class Truth:
    """The slots of a sum, added up in the clear."""

    bins: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    unfilled: int = 0
    real_reports: int = 0
    weight: int = 0

    def add(self, other: Truth) -> None:
        """Add the slots of another sum."""
        self.bins = self.bins + other.bins
        self.unfilled += other.unfilled
        self.real_reports += other.real_reports
        self.weight += other.weight


@dataclass(frozen=True, eq=False, slots=True)
class _Sent:
    """A block under way, with the places of its reports in their batch."""

    block: Block
    batch: ReportBatch
    rows: NDArray[np.int64]
    pending: object
    attempt: int


class FleetSender:
    """Sends the reports of one fleet along a route, several messages at a time.

    Args:
        route: matcher and shards.
        keep_truth: add up what is acknowledged; for small fleets and samples.
        pause: waits before a shard is asked again.
    """

    def __init__(
        self,
        route: Route,
        *,
        keep_truth: bool = True,
        pause: Callable[[], None] = lambda: time.sleep(_PAUSE_S),
    ) -> None:
        self._route, self._keep_truth, self._pause = route, keep_truth, pause
        self._table: Table | None = None
        self._class_id = np.empty((0, _CLASS_BYTES), np.uint8)
        self._snippet_hash = np.empty((0, _HASH_BYTES), np.uint8)
        self._is_known = np.empty(0, np.bool_)
        self._under_way: deque[_Sent] = deque()
        self.truth: dict[Pair, Truth] = defaultdict(Truth)
        """Plain sums of all reports that were acknowledged."""
        self.outcomes: Counter[Outcome] = Counter()

    def send(self, batch: ReportBatch) -> None:
        """Send all reports of a batch in the clear; answers may come later, see `finish`."""
        self._send(batch, np.arange(len(batch)), batch.plain_blobs())

    def send_sealed(self, batch: ReportBatch, encryptor: EncryptsMany) -> None:
        """Send the stratified sample of a batch, really sealed; answers may come later, see `finish`."""
        rows = np.flatnonzero(batch.sealed)
        if len(rows):
            blobs = batch.sealed_blobs(encryptor)
            self._send(batch, rows, matrix(b"".join(blobs), len(rows)))

    def finish(self) -> None:
        """Wait for all answers.

        Raises:
            TransportError: a shard did not take a block for too long.
        """
        while self._under_way:
            self._settle()

    def _send(self, batch: ReportBatch, rows: NDArray[np.int64], blobs: NDArray[np.uint8]) -> None:
        used, kind = np.unique(batch.app[rows], return_inverse=True)
        self._learn(batch, used)
        block = Block(
            batch.created_hour,
            self._class_id[used],
            self._snippet_hash[used],
            _signature_bytes(batch, used),
            kind,
            batch.counter_set[rows],
            batch.report_id[rows],
            blobs,
        )
        self._offer(block, batch, rows, 0)
        while len(self._under_way) > _WINDOW:
            self._settle()

    def _learn(self, batch: ReportBatch, apps: NDArray[np.int64]) -> None:
        if not len(self._is_known):
            self._class_id = np.zeros((len(batch.signatures), _CLASS_BYTES), np.uint8)
            self._snippet_hash = np.zeros((len(batch.signatures), _HASH_BYTES), np.uint8)
            self._is_known = np.zeros(len(batch.signatures), np.bool_)
        unknown = apps[~self._is_known[apps]]
        if not len(unknown):
            return
        model, scheme = batch.settings.gpu_model, batch.settings.task.signature_scheme
        signatures = _signature_bytes(batch, unknown)
        found = self._route.match([(model, scheme, each.tobytes()) for each in signatures])
        self._class_id[unknown] = matrix(b"".join(each.class_id for each in found), len(found))
        self._snippet_hash[unknown] = matrix(b"".join(each.snippet_hash for each in found), len(found))
        self._is_known[unknown] = True

    def _offer(self, block: Block, batch: ReportBatch, rows: NDArray[np.int64], attempt: int) -> None:
        """Send each shard its part."""
        if self._table is None:
            self._table = self._route.table()
        shards = sorted(set(self._table.owners))
        owner = np.array([shards.index(each) for each in self._table.owners])
        mine = owner[block.report_id[:, 0]]
        for at, shard in enumerate(shards):
            chosen = np.flatnonzero(mine == at)
            if len(chosen):
                part = block if len(chosen) == len(block) else block.part(chosen)
                pending = self._route.offer(shard, part)
                self._under_way.append(_Sent(part, batch, rows[chosen], pending, attempt))

    def _settle(self) -> None:
        """Take the oldest answer; what was not judged is offered again."""
        sent = self._under_way.popleft()
        try:
            answer = self._route.answer(sent.pending)
        except PenroseError as error:
            again, reason = np.arange(len(sent.block)), error.message
        else:
            again = answer.rows(*(each for each in OUTCOMES if each.send_again))
            reason = "; ".join(each for each in answer.details.values() if each)
            self._note(sent, answer)
        if not len(again):
            return
        if sent.attempt == _ATTEMPTS:
            message = f"No shard took {len(again)} reports: {reason}"
            raise TransportError(message, remedy="Look at the shards.")
        self._table = None
        if sent.attempt:  # a bucket that has moved is found at once
            self._pause()
        self._offer(sent.block.part(again), sent.batch, sent.rows[again], sent.attempt + 1)

    def _note(self, sent: _Sent, answer: BlockAnswer) -> None:
        counts = answer.counts()
        self.outcomes.update({each: count for each, count in counts.items() if not each.send_again})
        if self._keep_truth:
            done = answer.rows(Outcome.ACCEPTED, Outcome.KNOWN)
            for key, places in sent.block.part(done).groups(BatchId(0)).items():
                pair = Pair(key.class_id, key.counter_set)
                self.truth[pair].add(_truth_of(sent.batch, sent.rows[done][places]))


def _truth_of(batch: ReportBatch, rows: NDArray[np.int64]) -> Truth:
    return Truth(
        batch.counts[rows].sum(axis=0),
        int(batch.unfilled[rows].sum()),
        int(batch.real[rows].sum()),
        len(rows),
    )


def _signature_bytes(batch: ReportBatch, apps: NDArray[np.int64]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(batch.signatures[apps]).astype("<u4").view(np.uint8)


def merged(parts: Sequence[Mapping[Pair, Truth]]) -> dict[Pair, Truth]:
    """The truth of several fleets together."""
    total: dict[Pair, Truth] = defaultdict(Truth)
    for part in parts:
        for pair, each in part.items():
            total[pair].add(each)
    return dict(total)


def differences(truth: Mapping[Pair, Truth], opened: Mapping[Pair, Slots]) -> list[Pair]:
    """Sums that are missing on one side, or whose slots are not equal."""
    wrong = set(truth) ^ set(opened)
    for pair in set(truth) & set(opened):
        wanted, found = truth[pair], opened[pair]
        same = (wanted.unfilled, wanted.real_reports) == (found.unfilled, found.real_reports)
        if not same or not np.array_equal(wanted.bins, found.bins):
            wrong.add(pair)
    return sorted(wrong)
