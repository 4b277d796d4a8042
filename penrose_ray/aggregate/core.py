"""The working parts of one shard and how they change together."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.events import Placed, Reweighed
from penrose_ray.aggregate.routing import BUCKETS, bucket_of
from penrose_ray.aggregate.shard import Shard
from penrose_ray.aggregate.store import Journal
from penrose_ray.aggregate.sums import Addends, Sums
from penrose_ray.aggregate.thinning import kept
from penrose_ray.telemetry import COMMIT_REPORTS, COMMIT_SECONDS
from penrose_ray.types import BucketId

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.aggregate.change import Change
    from penrose_ray.aggregate.entries import Choice
    from penrose_ray.clock import Clock
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, ReportId

INCOMING: Final = "incoming"
OWNED: Final = "owned"
SEALED: Final = "sealed"
_HOUR_S: Final = 3600
_LOG: Final = logging.getLogger("penrose_ray.shard")


class Core:
    """Journal, sums and state machine of a shard; whoever uses them holds `mutex`.

    `placed` says that a directory places buckets: a new shard then starts without any.
    """

    def __init__(
        self, path: Path, task: Task, clock: Clock, *, placed: bool = False, validate_states: bool = False
    ) -> None:
        self.task, self.clock = task, clock
        self.mutex = threading.RLock()
        self.journal = Journal(path, task.task_id)
        try:
            self.sums = Sums(task, self.journal.sum, self.hour)
            self.halvings = self.journal.thinned()
            weights = Counter(self.journal.sum_weights())
            weights.update(self._replay())
            self.shard = Shard(
                task,
                weights=weights,
                closed=self.journal.released(),
                halvings=self.halvings,
                validate=validate_states,
            )
            if placed or self.journal.epoch():
                self.shard.handle(Placed(self.owned()))
        except BaseException:
            self.journal.close()
            raise
        self._stale = False

    def hour(self) -> int:
        """Hours since the epoch."""
        return int(self.clock.now_s() // _HOUR_S)

    def owned(self) -> frozenset[BucketId]:
        """Buckets that a directory has placed here and that are not sealed."""
        return frozenset(bucket for bucket, state in self.journal.buckets().items() if state == OWNED)

    def counted(self) -> frozenset[BucketId]:
        """Buckets whose reports are in the sums: all but those that are still coming in."""
        states = self.journal.buckets()
        return frozenset(
            bucket for bucket in map(BucketId, range(BUCKETS)) if states.get(bucket, OWNED) != INCOMING
        )

    def is_moving(self) -> bool:
        """Whether any bucket is on its way from here or to here: its reports lie in two journals."""
        return any(state != OWNED for state in self.journal.buckets().values())

    def is_kept(self, row: Row) -> bool:
        """Whether thinning keeps a report."""
        return kept(row.arrival.report_id, self.halvings.get(row.key, 0))

    def kept_ids(self, key: SumKey, ids: Iterable[ReportId]) -> tuple[ReportId, ...]:
        """Of these reports of a sum, those that are in it: not thinned, nor still coming in."""
        counted, halvings = self.counted(), self.halvings.get(key, 0)
        return tuple(each for each in ids if bucket_of(each) in counted and kept(each, halvings))

    def kept_groups(self, choice: Choice) -> Iterator[list[Row]]:
        """The reports chosen that are in a sum, in groups."""
        counted = self.counted()
        for group in self.groups(choice):
            yield [row for row in group if row.bucket in counted and self.is_kept(row)]

    def _replay(self) -> Counter[SumKey]:
        """Add the reports that the stored sums do not hold yet."""
        counted = self.counted()
        weights: Counter[SumKey] = Counter()
        for group in _chunks(self.journal.rows(after=self.journal.folded())):
            rows = [row for row in group if row.bucket in counted and self.is_kept(row)]
            self.sums.add(Addends.of(rows))
            weights.update(row.key for row in rows)
        return weights

    def groups(self, choice: Choice) -> Iterator[list[Row]]:
        """The reports chosen, in groups."""
        return _chunks(self.journal.rows(choice))

    def refresh(self) -> None:
        """After a failed change, fetch the sums from the journal again; call it before any use."""
        if self._stale:
            self.sums.forget()
            self._replay()
            self._stale = False

    @contextmanager
    def on_disk(self) -> Iterator[None]:
        """Add reports that are committed: after an error only the sums in memory lack them."""
        try:
            yield
        except Exception:  # noqa: BLE001 - whatever it is, those reports count
            _LOG.exception("committed reports could not be added up; the sums are read again")
            self._stale = True

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """Change rows, sums and buckets together: one transaction that ends by storing the sums.

        Raises:
            JournalError: nothing has changed.
        """
        self.refresh()
        self._stale = True
        with self.journal.change() as change:
            yield change
            change.put_sums(*self.sums.changed())
        self._stale = False
        self.sums.note_stored()

    def reweigh(self, keys: Collection[SumKey]) -> None:
        """Tell the state machine the weights of sums that a change touched."""
        records = {key: self.sums.record(key) for key in keys}
        self.shard.handle(Reweighed({key: each.weight if each else 0 for key, each in records.items()}))

    def forget_batch(self, batch: BatchId) -> None:
        """The journal has no sums of this batch any more."""
        self.sums.forget_batch(batch)
        self.shard.handle(Reweighed({key: 0 for key in self.shard.weights if key.batch == batch}))


@contextmanager
def commit_of(reports: int) -> Iterator[None]:
    """Count and time a transaction that adds so many reports, if it ends well."""
    started_s = time.perf_counter()
    yield
    COMMIT_SECONDS.observe(time.perf_counter() - started_s)
    COMMIT_REPORTS.observe(reports)


def _chunks(rows: Iterable[Row], size: int = 1000) -> Iterator[list[Row]]:
    chunk: list[Row] = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
