"""Load is shed at one rate on all shards; small classes keep everything."""

from __future__ import annotations

import hashlib
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from e2e.reports import one_bin_each

from penrose_ray.actors.thinner import Thinner
from penrose_ray.actors.throttle import Throttle
from penrose_ray.aggregate.arrival import Arrival, Outcome, SumKey
from penrose_ray.aggregate.service import OpenSums, ShardService
from penrose_ray.aggregate.thinning import kept
from penrose_ray.clock import ManualClock
from penrose_ray.types import BatchId, ClassId
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from penrose_ray.task import Task

LARGE, SMALL = (ClassId(hashlib.sha256(name).digest()[:16]) for name in (b"large", b"small"))


class Shard:
    """A shard that may be away."""

    def __init__(self, service: ShardService) -> None:
        self.service = service
        self.away = False

    def open_sums(self) -> OpenSums:
        return self.service.open_sums()

    def thin(self, halvings: Mapping[SumKey, int]) -> None:
        if self.away:
            raise ConnectionError("away")
        for key, level in halvings.items():
            self.service.regroup.thin({key: level})


@pytest.fixture(scope="module")
def task(make_task: Callable[..., Task]) -> Task:
    return make_task(reports_per_class=0, cover_rate=0.0)


@pytest.fixture(scope="module")
def arrivals(task: Task) -> list[Arrival]:
    """128 reports of a large class."""
    reports = [decode(record) for record in one_bin_each(task, 1, seed=1)]
    return [Arrival.of(each, LARGE, hashlib.sha256(each.signature).digest()) for each in reports]


@pytest.fixture(scope="module")
def rare(task: Task) -> list[Arrival]:
    """10 reports of a small class."""
    reports = [decode(record) for record in one_bin_each(task, 1, seed=2)[:10]]
    return [Arrival.of(each, SMALL, hashlib.sha256(each.signature).digest()) for each in reports]


@pytest.fixture
def clock(arrivals: list[Arrival]) -> ManualClock:
    return ManualClock(arrivals[0].created_hour * 3600.0)


@pytest.fixture
def shards(tmp_path: Path, task: Task, clock: ManualClock) -> Iterator[list[Shard]]:
    made = [
        Shard(ShardService(tmp_path / f"shard-{number}", task, clock, validate_states=True))
        for number in range(2)
    ]
    yield made
    for each in made:
        each.service.close()


def thinner(shards: list[Shard], clock: ManualClock, most_per_s: float = 2.0) -> Thinner:
    return Thinner(lambda: shards, clock, most_per_s=most_per_s, least_per_s=0.2)


def send(shards: list[Shard], arrivals: list[Arrival]) -> Counter[Outcome]:
    outcomes: Counter[Outcome] = Counter()
    for number, shard in enumerate(shards):
        outcomes.update(each.outcome for each in shard.service.accept(arrivals[number :: len(shards)]))
    return outcomes


def test_a_frequent_class_is_thinned_on_every_shard_and_a_small_one_never(
    shards: list[Shard], clock: ManualClock, arrivals: list[Arrival], rare: list[Arrival]
) -> None:
    policy = thinner(shards, clock)
    assert policy.tick() == {}, "a rate needs two looks"
    assert send(shards, [*arrivals[:120], *rare[:5]]) == {Outcome.ACCEPTED: 125}
    clock.advance(30)
    (thinned,) = policy.tick().items()
    assert (thinned[0].class_id, thinned[1]) == (LARGE, 2), "4 a second, 2 are wanted, 0.17 are not touched"
    for shard in shards:
        assert shard.service.open_sums().halvings == {thinned[0]: 2}

    outcomes = send(shards, [*arrivals[120:], *rare[5:]])
    assert outcomes[Outcome.ACCEPTED] + outcomes[Outcome.THINNED] == 13
    parts = [part for shard in shards for part in shard.service.sums(thinned[0].batch)]
    wanted = sum(kept(each.report_id, 2) for each in arrivals)
    assert sum(part.weight for part in parts if part.class_id == LARGE) == wanted
    assert sum(part.weight for part in parts if part.class_id == SMALL) == 10
    assert {(part.class_id, part.keep_share) for part in parts} == {(LARGE, 0.25), (SMALL, 1.0)}


def test_without_a_limit_nothing_is_thinned(
    shards: list[Shard], clock: ManualClock, arrivals: list[Arrival]
) -> None:
    policy = thinner(shards, clock, most_per_s=0)
    policy.tick()
    send(shards, arrivals)
    clock.advance(30)
    assert policy.tick() == {}


def test_rates_fall_further_while_the_load_stays(
    shards: list[Shard], clock: ManualClock, arrivals: list[Arrival]
) -> None:
    policy = thinner(shards, clock, most_per_s=1.0)
    policy.tick()
    send(shards, arrivals[:64])
    clock.advance(30)
    (first,) = policy.tick().values()
    send(shards, arrivals[64:])
    clock.advance(10)
    assert policy.tick() == {}, "too early for a rate"
    clock.advance(20)
    policy.tick()
    (now,) = {
        shard.service.open_sums().halvings[key]
        for shard in shards
        for key in shard.service.open_sums().halvings
    }
    assert first <= now <= first + 2


def test_a_shard_that_missed_a_rate_has_it_before_its_batch_is_closed(
    shards: list[Shard], clock: ManualClock, arrivals: list[Arrival]
) -> None:
    policy = thinner(shards, clock)
    policy.tick()
    send(shards, arrivals)
    clock.advance(30)
    shards[1].away = True
    with pytest.raises(ConnectionError):
        policy.tick()
    assert shards[1].service.open_sums().halvings == {}
    shards[1].away = False
    (batch,) = {each.batch for shard in shards for each in shard.service.batches()}
    with policy.levelled():
        for shard in shards:
            shard.service.close_batch(batch)
    parts = [part for shard in shards for part in shard.service.sums(batch)]
    assert {part.keep_share for part in parts} == {0.25}
    with policy.levelled():
        assert parts == [part for shard in shards for part in shard.service.sums(batch)], "closed is closed"


def test_a_rate_for_a_sum_that_is_not_there_yet_holds_when_it_comes(
    shards: list[Shard], task: Task, arrivals: list[Arrival]
) -> None:
    key = SumKey(LARGE, 0, BatchId(task.batch_of(arrivals[0].created_hour * 3600)))
    shards[0].thin({key: 3})
    answers = shards[0].service.accept(arrivals)
    assert [each.outcome is Outcome.ACCEPTED for each in answers] == [
        kept(each.report_id, 3) for each in arrivals
    ]


def test_under_heavy_load_four_of_five_requests_are_taken_and_none_waits_for_long() -> None:
    load = [0.0]
    throttle = Throttle(5.0, 0.8, lambda: load[0])
    assert all(throttle.admits() for _ in range(20))
    load[0] = 5.1
    taken = [throttle.admits() for _ in range(1000)]
    assert sum(taken) == 800
    assert not any(not (one or other) for one, other in pairwise(taken))
    load[0] = 1.0
    assert all(throttle.admits() for _ in range(20))
