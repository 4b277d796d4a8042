from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from penrose_ray.aggregate.arrival import Outcome, SumKey
from penrose_ray.aggregate.service import ShardService
from penrose_ray.aggregate.thinning import kept
from penrose_ray.types import BatchId, ClassId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.aggregate.arrival import Arrival
    from penrose_ray.clock import ManualClock
    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports


@pytest.fixture
def shard(tmp_path: Path, task: Task, clock: ManualClock) -> Iterator[ShardService]:
    with ShardService(tmp_path / "shard", task, clock, validate_states=True) as service:
        yield service


def mixed(reports: Reports) -> list[Arrival]:
    """Reports 0 to 7 of one class, made of two programs: even numbers have signature x, odd ones y."""
    return [reports.one(number, name="xy"[number % 2], in_class="large") for number in range(8)]


def by_class(shard: ShardService, reports: Reports, batch: int) -> dict[ClassId, Counter[int]]:
    return {total.class_id: reports.hits([total]) for total in shard.sums(batch)}


def snippet_hash(name: str) -> bytes:
    return hashlib.sha256(hashlib.sha256(name.encode()).digest() * 2).digest()


def test_a_split_goes_by_the_stored_signatures(
    shard: ShardService, reports: Reports, tmp_path: Path, task: Task, clock: ManualClock
) -> None:
    shard.accept(mixed(reports))
    (batch,) = shard.batches()
    new = reports.class_id("y alone")
    for _ in range(2):
        shard.regroup.split(reports.class_id("large"), {snippet_hash("y"): new})
        expected = {reports.class_id("large"): Counter([0, 2, 4, 6]), new: Counter([1, 3, 5, 7])}
        assert by_class(shard, reports, batch.batch) == expected
    shard.close()
    with ShardService(tmp_path / "shard", task, clock, validate_states=True) as reopened:
        assert by_class(reopened, reports, batch.batch) == expected
        assert reopened.accept(mixed(reports))[1].outcome is Outcome.KNOWN


def test_a_class_may_be_split_up_altogether(shard: ShardService, reports: Reports) -> None:
    shard.accept(mixed(reports))
    (batch,) = shard.batches()
    classes = {snippet_hash(name): reports.class_id(f"{name} alone") for name in "xy"}
    shard.regroup.split(reports.class_id("large"), classes)
    assert by_class(shard, reports, batch.batch) == {
        reports.class_id("x alone"): Counter([0, 2, 4, 6]),
        reports.class_id("y alone"): Counter([1, 3, 5, 7]),
    }


def test_a_released_batch_is_not_split(shard: ShardService, reports: Reports) -> None:
    shard.accept(mixed(reports))
    (batch,) = shard.batches()
    shard.close_batch(batch.batch)
    before = shard.sums(batch.batch)
    shard.regroup.split(reports.class_id("large"), {snippet_hash("y"): reports.class_id("y alone")})
    assert shard.sums(batch.batch) == before


def test_the_parts_of_a_thinned_class_keep_its_rate(shard: ShardService, reports: Reports) -> None:
    shard.accept(mixed(reports))
    (batch,) = shard.batches()
    shard.regroup.thin({SumKey(reports.class_id("large"), 0, BatchId(batch.batch)): 1})
    new = reports.class_id("y alone")
    shard.regroup.split(reports.class_id("large"), {snippet_hash("y"): new})
    totals = {total.class_id: total for total in shard.sums(batch.batch)}
    assert {total.keep_share for total in totals.values()} == {0.5}
    kept_numbers = [number for number in range(8) if kept(reports.one(number).report_id, 1)]
    assert reports.hits(totals.values()) == Counter(kept_numbers)


@pytest.mark.parametrize("thinned", ["large", "y alone"])
def test_a_sum_that_gets_reports_holds_what_its_lower_rate_keeps(
    shard: ShardService, reports: Reports, thinned: str
) -> None:
    """The published rate must be that of all reports in it: those before the split, and those moved."""
    shard.accept(mixed(reports))
    shard.accept([reports.one(number, name="y", in_class="y alone") for number in range(8, 24)])
    (batch,) = shard.batches()
    shard.regroup.thin({SumKey(reports.class_id(thinned), 0, BatchId(batch.batch)): 1})
    new = reports.class_id("y alone")
    shard.regroup.split(reports.class_id("large"), {snippet_hash("y"): new})
    found = {total.class_id: total for total in shard.sums(batch.batch)}
    wanted = [number for number in (1, 3, 5, 7, *range(8, 24)) if kept(reports.one(number).report_id, 1)]
    assert (found[new].keep_share, reports.hits([found[new]])) == (0.5, Counter(wanted))
    shard.accept([reports.one(number, name="y", in_class="y alone") for number in range(24, 40)])
    after = next(each for each in shard.sums(batch.batch) if each.class_id == new)
    wanted += [number for number in range(24, 40) if kept(reports.one(number).report_id, 1)]
    assert (after.weight, reports.hits([after])) == (len(wanted), Counter(wanted))


def test_a_retry_after_a_merge_counts_once(shard: ShardService, reports: Reports) -> None:
    shard.accept([reports.one(1, name="a")])
    assert shard.accept([reports.one(1, name="b"), reports.one(2, name="b")])[0].outcome is Outcome.KNOWN
    (batch,) = shard.batches()
    assert reports.hits(shard.sums(batch.batch)) == Counter([1, 2])
