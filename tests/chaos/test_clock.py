"""The service's clock jumps by an hour, both ways, while reports arrive: each is in the sums once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from e2e.http_service import HttpService
from e2e.reports import one_bin_each

from penrose_ray.actors.scaler import Load, Scaler
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.packing import unpack
from penrose_ray.task import sign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

HOUR_S = 3600.0


@pytest.fixture
def service(tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys) -> Iterator[HttpService]:
    task = make_task(reports_per_class=0, cover_rate=0.0)
    made = HttpService(tmp_path, sign(task, design_keys.signing).encode())
    yield made
    made.close()


@pytest.mark.parametrize("jumps", [(1, -1), (-1, 1), (1, -2, 1)], ids=str)
def test_sums_are_exact_across_jumps_of_the_clock(
    service: HttpService, design_keys: DesignKeys, jumps: tuple[int, ...]
) -> None:
    records = one_bin_each(service.task, 1)
    share = len(records) // (len(jumps) + 1)
    outcomes: Counter[int] = Counter()
    for number in range(len(jumps) + 1):
        first, last = number * share, (number + 1) * share if number < len(jumps) else len(records)
        again = max(0, first - 10)  # and the ten before for the second time
        for at in range(again, last, 4):
            outcomes[service.post(b"".join(records[at : min(at + 4, last)]))[0]] += 1
        if number < len(jumps):
            service.clock.jump(jumps[number] * HOUR_S)
            service.shard.upkeep.tick()
    assert set(outcomes) == {200}

    profile = service.task.profile()
    bins = np.zeros(128, np.int64)
    for batch in service.shard.batches():
        for total in service.shard.sums(batch.batch):
            bins += np.array(
                unpack(design_keys.paillier.decrypt(total.blob, profile), profile).bins, np.int64
            )
    assert bins.tolist() == [1] * 128


class Busy:
    """Two busy shards with reports waiting."""

    def __init__(self) -> None:
        self.busy_s = {"shard-0": 0.0, "shard-1": 0.0}
        self.grown = 0

    def load(self) -> Load:
        self.busy_s = {name: busy + 4.9 for name, busy in self.busy_s.items()}
        return Load(dict(self.busy_s), 10)

    def pending(self) -> int:
        return 0

    def grow(self, shards: int) -> None:
        self.grown += shards

    def shrink(self) -> None:
        raise AssertionError("they are busy")


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_jump_neither_stops_the_scaler_nor_makes_it_shrink(jump_s: float) -> None:
    clock, pool = ManualClock(), Busy()
    scaler = Scaler(pool, clock, least=1, most=8)
    for tick in range(200):
        clock.advance(5)
        clock.jump(jump_s if tick == 30 else 0)
        scaler.tick()
    assert pool.grown >= 2
