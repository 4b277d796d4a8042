"""What the gateway knows of classes while one is split, whatever is under way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import numpy as np
import pytest
from e2e.one_shard import OneShard

from penrose_ray.actors.intake import Intake
from penrose_ray.actors.matcher import Matcher
from penrose_ray.aggregate.arrival import Answer
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import SystemClock
from penrose_ray.seal import Contribution, Sealer
from penrose_ray.snippet.minhash import FUNCTIONS, Signature, scheme
from penrose_ray.task import sign
from penrose_ray.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.task import Task
    from penrose_ray.types import ReportId


class Slow(OneShard):
    """The answers of its method `slow` are on their way for as long as `delayed` is not set."""

    def __init__(self, home: Path, signed: bytes, task: Task, slow: str) -> None:
        self._slow = slow
        self.matcher = Matcher(home / "classes.sqlite", signed)
        self.shard = ShardService(home / "shard.sqlite", task, SystemClock())
        self.intake = Intake(signed, self, most_reports=8)
        self.delayed = asyncio.Event()
        self.asked = asyncio.Event()

    async def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        found = await super().match(wanted)
        await self._delay("match")
        return found

    async def known(self, shard: str, ids: Sequence[ReportId]) -> set[ReportId]:
        found = await super().known(shard, ids)
        await self._delay("known")
        return found

    async def _delay(self, method: str) -> None:
        if method == self._slow:
            self.asked.set()
            await self.delayed.wait()

    async def split_while(self, body: bytes, signature: Signature) -> Answer:
        """Split a class while that body is under way; the answer to its last report."""
        self.delayed.clear()
        self.asked.clear()
        under_way = asyncio.create_task(self.intake.take(body))
        await asyncio.wait_for(self.asked.wait(), 60)
        (first,) = self.matcher.classes()
        self.matcher.split(first.class_id, signature.to_bytes())
        self.intake.forget_classes()
        self.delayed.set()
        answer = (await under_way)[-1]
        assert isinstance(answer, Answer)
        return answer

    def weights(self) -> list[int]:
        """Reports of each class, the oldest class first."""
        found = {key.class_id: weight for key, weight in self.shard.weights().items()}
        return [found.get(each.class_id, 0) for each in self.matcher.classes()]


@pytest.fixture
def task(make_task: Callable[..., Task]) -> Task:
    return make_task(slot_profile="plain3072", cover_rate=0.0)


def alike(task: Task, changed: int) -> Signature:
    """One program's signature with so many values of each view changed."""
    size = scheme(task.signature_scheme).size
    values = np.random.default_rng(1).integers(0, 2**32, size, np.uint32)
    values.reshape(-1, FUNCTIONS)[:, 1 : 1 + changed] += 1
    return Signature(task.signature_scheme, values)


def record(task: Task, signature: Signature) -> bytes:
    counts = np.zeros(128, np.int64)
    counts[0] = 50
    sealer = Sealer(task, "Test GPU", task.cipher().encryptor())
    return encode(sealer.seal(Contribution(0, counts, real=True), signature, now_s=SystemClock().now_s()))


def test_an_answer_of_before_a_split_is_not_remembered_after_it(
    tmp_path: Path, task: Task, design_keys: DesignKeys
) -> None:
    first, other = alike(task, 0), alike(task, 4)

    async def main() -> list[int]:
        backend = Slow(tmp_path, sign(task, design_keys.signing).encode(), task, "match")
        backend.delayed.set()
        await backend.intake.take(record(task, first))
        await backend.split_while(record(task, other), other)
        for _ in range(3):
            await backend.intake.take(record(task, other))
        backend.shard.close()
        return backend.weights()

    before, after = asyncio.run(main())
    assert (before, after) == (2, 3)


def test_a_body_under_way_while_classes_are_forgotten_is_taken(
    tmp_path: Path, task: Task, design_keys: DesignKeys
) -> None:
    first, other = alike(task, 0), alike(task, 4)

    async def main() -> Answer:
        backend = Slow(tmp_path, sign(task, design_keys.signing).encode(), task, "known")
        backend.delayed.set()
        await backend.intake.take(record(task, first))
        body = record(task, other) + record(task, first)
        answer = await backend.split_while(body, other)
        backend.shard.close()
        return answer

    assert asyncio.run(main()).outcome.acknowledged
