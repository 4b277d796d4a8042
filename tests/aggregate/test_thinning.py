from __future__ import annotations

import hashlib
import math
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.aggregate.arrival import Outcome, SumKey
from penrose_ray.aggregate.service import ShardService
from penrose_ray.aggregate.thinning import admitted_share, keep_share, kept, shed
from penrose_ray.types import BatchId, ClassId, ReportId

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.clock import ManualClock
    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

IDS = [ReportId(hashlib.sha256(f"id {number}".encode()).digest()) for number in range(20_000)]


def key(number: int) -> SumKey:
    return SumKey(ClassId(number.to_bytes(16, "big")), 0, BatchId(7))


@pytest.mark.parametrize("halvings", [0, 1, 2, 5])
def test_the_published_share_is_kept(halvings: int) -> None:
    share = keep_share(halvings)
    assert share == 1 / 2**halvings
    deviation = math.sqrt(len(IDS) * share * (1 - share))
    assert abs(sum(kept(id_, halvings) for id_ in IDS) - len(IDS) * share) <= 4 * deviation


def test_what_is_kept_at_a_lower_rate_is_kept_at_a_higher_one() -> None:
    for halvings in range(6):
        assert {id_ for id_ in IDS if kept(id_, halvings + 1)} < {id_ for id_ in IDS if kept(id_, halvings)}


def test_thinning_does_not_depend_on_the_bucket() -> None:
    kept_by_bucket = Counter(id_[0] >> 5 for id_ in IDS if kept(id_, 1))
    expected = len(IDS) / 16
    assert sum((count - expected) ** 2 / (expected / 2) for count in kept_by_bucket.values()) < 26.1
    # the 99.9 % quantile of chi squared with 8 degrees of freedom


def test_a_sum_divided_by_its_share_is_unbiased() -> None:
    values = np.random.default_rng(3).integers(0, 100, 400).tolist()
    estimates = []
    for trial in range(600):
        salt = trial.to_bytes(2, "big")
        ids = [ReportId(hashlib.sha256(salt + id_).digest()) for id_ in IDS[:400]]
        left = sum(value for value, id_ in zip(values, ids, strict=True) if kept(id_, 2))
        estimates.append(left / keep_share(2))
    spread = float(np.std(estimates))
    assert abs(np.mean(estimates) - sum(values)) < 4 * spread / math.sqrt(600)
    # the variance of the estimator in closed form: (1 / p - 1) times the sum of the squared values
    assert spread == pytest.approx(math.sqrt(3 * sum(value**2 for value in values)), rel=0.15)


@given(
    rates=st.lists(st.floats(0.001, 1e5), min_size=1, max_size=30),
    wanted=st.floats(0, 1e5),
    floor=st.floats(0.1, 100),
)
def test_shedding_takes_from_the_most_frequent_only(rates: list[float], wanted: float, floor: float) -> None:
    by_key = {key(number): rate for number, rate in enumerate(rates)}
    halvings = shed(by_key, {}, wanted_per_s=wanted, floor_per_s=floor)
    left = {each: rate * keep_share(halvings.get(each, 0)) for each, rate in by_key.items()}
    assert all(left[each] >= floor for each in halvings)
    untouched = [rate for each, rate in by_key.items() if each not in halvings]
    assert all(2 * left[each] >= rate for each in halvings for rate in untouched)
    could_shed_more = any(rate / 2 >= floor and halvings.get(each, 0) < 20 for each, rate in left.items())
    assert sum(left.values()) <= wanted * (1 + 1e-9) or not could_shed_more
    if sum(rates) <= wanted:
        assert halvings == {}


@pytest.mark.parametrize(("load", "share"), [(0.0, 1.0), (5.0, 1.0), (5.1, 0.8), (100.0, 0.8)])
def test_requests_are_throttled_under_heavy_load(load: float, share: float) -> None:
    assert admitted_share(load) == share


def test_shedding_goes_on_from_where_it_is() -> None:
    rates = {key(0): 1000.0, key(1): 10.0}
    first = shed(rates, {}, wanted_per_s=300, floor_per_s=1)
    assert first == {key(0): 2}
    assert shed(rates, first, wanted_per_s=300, floor_per_s=1) == {}
    assert shed(rates, first, wanted_per_s=150, floor_per_s=1) == {key(0): 3}


def test_a_thinned_sum_holds_exactly_the_reports_that_are_kept(
    tmp_path: Path, task: Task, clock: ManualClock, reports: Reports
) -> None:
    arrivals = reports.some(range(64))
    with ShardService(tmp_path / "shard", task, clock, validate_states=True) as shard:
        shard.accept([*arrivals[:40], reports.one(99, name="b")])
        (batch,) = shard.batches()
        large = SumKey(arrivals[0].class_id, 0, BatchId(batch.batch))
        shard.regroup.thin({large: 1})
        shard.regroup.thin({large: 1})
        outcomes = [answer.outcome for answer in shard.accept(arrivals)]
        assert outcomes[:40] == [Outcome.KNOWN] * 40
        assert outcomes[40:] == [
            Outcome.ACCEPTED if kept(each.report_id, 1) else Outcome.THINNED for each in arrivals[40:]
        ]
        sums = shard.sums(batch.batch)
    by_class = {total.class_id: total for total in sums}
    expected = Counter(number for number in range(64) if kept(arrivals[number].report_id, 1))
    assert reports.hits([by_class[large.class_id]]) == expected
    assert by_class[large.class_id].keep_share == 0.5
    assert by_class[reports.class_id("b")].keep_share == 1.0
    with ShardService(tmp_path / "shard", task, clock, validate_states=True) as shard:
        assert shard.sums(batch.batch) == sums
        assert [answer.outcome for answer in shard.accept(arrivals[40:])] == [
            Outcome.KNOWN if kept(each.report_id, 1) else Outcome.THINNED for each in arrivals[40:]
        ]


def test_a_released_sum_is_not_thinned(
    tmp_path: Path, task: Task, clock: ManualClock, reports: Reports
) -> None:
    with ShardService(tmp_path / "shard", task, clock, validate_states=True) as shard:
        shard.accept(reports.some(range(3)))
        (batch,) = shard.batches()
        shard.close_batch(batch.batch)
        with pytest.raises(ValueError, match="released"):
            shard.regroup.thin({SumKey(reports.class_id("a"), 0, BatchId(batch.batch)): 1})
