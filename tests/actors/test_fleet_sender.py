"""A fleet's sealed sample through a real matcher and real shards opens to the plain sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.actors.fleet import Fleet, FleetSettings
from penrose_ray.actors.fleet_sender import FleetSender, Pair, Truth, differences
from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.routing import Table
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import Slots, check_sum, unpack
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.workloads import Group, grouped
from penrose_ray.snippet.journal import ClassJournal
from penrose_ray.snippet.minhash import Signature
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from penrose_ray.aggregate.block import Block, BlockAnswer
    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.task import Task

BATCH = BatchId(240_000)
NAMES = ("shard-0", "shard-1")


class Route:
    """A class journal and two shards in this process."""

    def __init__(self, home: Path, task: Task) -> None:
        clock = ManualClock((BATCH + 1) * task.batch_s - 60.0)
        self.task = task
        self.journal = ClassJournal(home / "classes.sqlite", task.signature_scheme, task.similarity)
        self.shards = {name: ShardService(home / f"{name}.sqlite", task, clock) for name in NAMES}
        self._table = Table.of(NAMES)

    def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        return self.journal.match([(model, Signature.from_bytes(*rest)) for model, *rest in wanted])

    def table(self) -> Table:
        return self._table

    def offer(self, shard: str, block: Block) -> object:
        return shard, block

    def answer(self, pending: tuple[str, Block]) -> BlockAnswer:
        shard, block = pending
        return self.shards[shard].accept_block(block)

    def opened(self, keys: DesignKeys) -> tuple[dict[Pair, Slots], Counter[Pair]]:
        """Sums of both shards, decrypted and checked, and their weights."""
        profile, weights = self.task.profile(), Counter[Pair]()
        sums: dict[Pair, Accumulator] = {}
        for shard in self.shards.values():
            for part in shard.sums(BATCH):
                pair = Pair(part.class_id, part.counter_set)
                weights[pair] += part.weight
                capacity = self.task.capacity()
                total = sums.setdefault(pair, Accumulator(self.task.key(), profile, capacity=capacity))
                total.merge(part.blob, part.weight)
        slots = {
            pair: unpack(keys.paillier.decrypt(total.to_bytes(), profile), profile)
            for pair, total in sums.items()
        }
        for pair, each in slots.items():
            check_sum(each, weight=weights[pair], samples_per_histogram=self.task.samples_per_histogram)
        return slots, weights


@pytest.fixture
def route(make_task: Callable[..., Task], tmp_path: Path) -> Iterator[Route]:
    task = make_task(batch_s=7200, samples_per_histogram=1000, min_samples=50, reports_per_class=1)
    made = Route(tmp_path, task)
    yield made
    for shard in made.shards.values():
        shard.close()
    made.journal.close()


@pytest.fixture
def settings(route: Route) -> FleetSettings:
    workload = grouped(4, [Group(0.5, 0.6, spread=0.1), Group(0.5, 1.2, spread=0.1)])
    sampling = Sampling(counter_groups=2, rotation_s=1200.0)
    scenario = Scenario(workload, np.full(4, 0.25), clients=2000, sampling=sampling)
    return FleetSettings(route.task, scenario, sealed_one_in=200)


def test_the_sealed_sample_opens_to_the_truth(
    route: Route, settings: FleetSettings, design_keys: DesignKeys
) -> None:
    sender = FleetSender(route)
    encryptor = Encryptor(route.task.key(), route.task.profile(), exponent="short")
    for first in (0, 1000):  # two fleets, as two actors would hold them
        for batch in Fleet(first, 1000, settings, seed=4).reports(BATCH):
            sender.send_sealed(batch, encryptor)
    sender.finish()
    slots, weights = route.opened(design_keys)
    assert set(sender.outcomes) == {Outcome.ACCEPTED}
    assert sender.outcomes.total() == weights.total() > 50
    assert {pair: total.weight for pair, total in sender.truth.items()} == weights
    assert differences(sender.truth, slots) == []
    assert len(route.journal.classes()) == 4
    assert all(shard.counts().reports for shard in route.shards.values())


def test_a_fleet_sent_again_counts_once(route: Route, settings: FleetSettings) -> None:
    encryptor = Encryptor(route.task.key(), route.task.profile(), exponent="short")
    outcomes: Counter[Outcome] = Counter()
    for _ in range(2):
        sender = FleetSender(route)
        for batch in Fleet(0, 400, settings, seed=4).reports(BATCH):
            sender.send_sealed(batch, encryptor)
        sender.finish()
        outcomes.update(sender.outcomes)
    assert outcomes[Outcome.ACCEPTED] == outcomes[Outcome.KNOWN] > 0
    assert len(outcomes) == 2


def test_differences_name_every_sum_that_is_wrong() -> None:
    pairs = [Pair(bytes([number]) * 16, 0) for number in range(5)]  # type: ignore[arg-type]
    truth: dict[Pair, Truth] = defaultdict(Truth, {pair: Truth(unfilled=7) for pair in pairs[:4]})
    zeros, one = np.zeros(128, np.int64), np.eye(1, 128, dtype=np.int64)[0]
    opened = {
        pairs[0]: Slots(zeros, 7, 0),
        pairs[1]: Slots(zeros, 8, 0),
        pairs[2]: Slots(one, 7, 0),
        pairs[4]: Slots(zeros, 7, 0),
    }
    assert differences(truth, opened) == pairs[1:]
