"""Retention and compaction while buckets move: a row in two journals at once is counted once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from penrose_ray.aggregate.archive import Archive
from penrose_ray.aggregate.moving import Placement
from penrose_ray.aggregate.routing import BUCKETS, bucket_of
from penrose_ray.aggregate.service import ShardService
from penrose_ray.types import BucketId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.clock import ManualClock
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId
    from tests.aggregate.conftest import Reports

KEPT_S = 48 * 3600
ALL = frozenset(map(BucketId, range(BUCKETS)))
LOW = frozenset(bucket for bucket in ALL if bucket < BUCKETS // 2)


class Pair:
    """Two shards that share an archive; the first one has all buckets."""

    def __init__(self, home: Path, task: Task, clock: ManualClock, reports: Reports) -> None:
        archive = Archive(str(home / "cold"))
        self.reports, self._epoch = reports, 1
        self.source, self.target = (
            ShardService(home / name, task, clock, placed=True, archive=archive, validate_states=True)
            for name in ("source", "target")
        )
        self.settle(frozenset())

    @property
    def both(self) -> tuple[ShardService, ShardService]:
        return self.source, self.target

    def copy(self, buckets: frozenset[BucketId]) -> None:
        self._epoch += 1
        self.source.moves.seal(buckets, epoch=self._epoch)
        self.target.moves.receive(self.source.moves.export(buckets, epoch=self._epoch))

    def settle(self, targets: frozenset[BucketId]) -> None:
        self.target.moves.settle(Placement(self._epoch, targets))
        self.source.moves.settle(Placement(self._epoch, ALL - targets))

    def take(self, numbers: range, targets: frozenset[BucketId]) -> BatchId:
        """Reports in a batch that is closed and handed over."""
        arrivals = [self.reports.one(number) for number in numbers]
        for shard, is_own in ((self.target, True), (self.source, False)):
            shard.accept([each for each in arrivals if (bucket_of(each.report_id) in targets) is is_own])
        (batch,) = {each.batch for shard in self.both for each in shard.batches()}
        for shard in self.both:
            shard.close_batch(batch)
            shard.upkeep.note_handed_over([batch])
        return batch

    def hits(self, batch: BatchId) -> Counter[int]:
        return self.reports.hits([total for shard in self.both for total in shard.sums(batch)])


@pytest.fixture
def pair(tmp_path: Path, task: Task, clock: ManualClock, reports: Reports) -> Iterator[Pair]:
    made = Pair(tmp_path, task, clock, reports)
    yield made
    for shard in made.both:
        shard.close()


@pytest.mark.parametrize("purged", ["source", "target"])
def test_rows_that_are_being_copied_are_purged_when_they_have_arrived(
    pair: Pair, clock: ManualClock, purged: str
) -> None:
    batch = pair.take(range(8), frozenset())
    clock.advance(KEPT_S)
    pair.copy(ALL)
    assert getattr(pair, purged).upkeep.purge() == 0
    pair.settle(ALL)
    assert pair.hits(batch) == Counter(range(8))
    assert pair.target.upkeep.purge() == 1
    assert pair.hits(batch) == Counter(range(8))


def test_a_purge_stops_where_a_bucket_begins_to_move(
    pair: Pair, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.aggregate.upkeep._DELETE", 2)
    batch = pair.take(range(8), frozenset())
    clock.advance(KEPT_S)
    pair.source.upkeep.give_way = lambda: pair.copy(ALL)
    assert pair.source.upkeep.purge() == 0
    pair.settle(ALL)
    assert pair.hits(batch) == Counter(range(8))
    pair.target.upkeep.purge()
    assert pair.hits(batch) == Counter(range(8))


def test_what_comes_to_an_archived_batch_replaces_nothing(pair: Pair, clock: ManualClock) -> None:
    pair.copy(LOW)
    pair.settle(LOW)
    batch = pair.take(range(16), LOW)
    clock.advance(KEPT_S)
    pair.target.upkeep.purge()
    assert pair.target.upkeep.compact() == [batch]
    pair.copy(ALL - LOW)
    pair.settle(ALL)
    assert pair.hits(batch) == Counter(range(16))
    clock.advance(KEPT_S)
    pair.target.upkeep.purge()
    pair.target.upkeep.compact()
    assert pair.hits(batch) == Counter(range(16))
