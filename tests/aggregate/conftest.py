"""Sealed reports whose sums are known: report number i has all its samples in bin i."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.aggregate.arrival import Arrival, PartialSum
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import Slots, check_sum, pack, unpack
from penrose_ray.histogram import Axis, CounterSet
from penrose_ray.histogram import Counter as Measured
from penrose_ray.task import Task
from penrose_ray.types import ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penrose_ray.crypto.keyfile import DesignKeys

SAMPLES = 100
NOW_S = 1_750_000_000.0
HOUR = int(NOW_S // 3600)


class Reports:
    """Makes arrivals and opens sums."""

    def __init__(self, keys: DesignKeys, task: Task, encryptor: Encryptor) -> None:
        self.task = task
        self._keys, self._encryptor = keys, encryptor
        self._sealed: dict[int, bytes] = {}

    def blob(self, bin_: int) -> bytes:
        """A sealed histogram with all samples in one bin."""
        if bin_ not in self._sealed:
            bins = np.zeros(128, dtype=np.int64)
            bins[bin_] = SAMPLES
            self._sealed[bin_] = self._encryptor.encrypt(pack(Slots(bins, 0, 1), self.task.profile()))
        return self._sealed[bin_]

    def one(
        self,
        number: int,
        *,
        name: str = "a",
        in_class: str | None = None,
        counter_set: int = 0,
        hour: int = HOUR,
        blob: bytes | None = None,
    ) -> Arrival:
        """Report `number` of snippet `name`, in the class of that name or in another.

        All its samples lie in bin `number` modulo 128.
        """
        signature = hashlib.sha256(name.encode()).digest() * 2
        return Arrival(
            ReportId(hashlib.sha256(f"report {number}".encode()).digest()),
            self.class_id(in_class or name),
            hashlib.sha256(signature).digest(),
            counter_set,
            hour,
            signature,
            self.blob(number % 128) if blob is None else blob,
        )

    def some(self, numbers: range, *, name: str = "a") -> list[Arrival]:
        """Reports of these numbers."""
        return [self.one(number, name=name) for number in numbers]

    def class_id(self, name: str) -> ClassId:
        """The id of class `name`."""
        return ClassId(hashlib.sha256(f"class {name}".encode()).digest()[:16])

    def hits(self, totals: Iterable[PartialSum]) -> Counter[int]:
        """How many reports each bin holds, over all these sums; bins without any are left out."""
        hits: Counter[int] = Counter()
        for total in totals:
            hits.update({bin_: count for bin_, count in enumerate(self.opened(total)) if count})
        return hits

    def opened(self, total: PartialSum) -> list[int]:
        """How many reports each bin holds, after the sum rule."""
        profile = self.task.profile()
        slots = unpack(self._keys.paillier.decrypt(total.blob, profile), profile)
        check_sum(slots, weight=total.weight, samples_per_histogram=SAMPLES)
        return [int(value) // SAMPLES for value in slots.bins]


@pytest.fixture(scope="session")
def task(design_keys: DesignKeys) -> Task:
    duration = Measured("duration", "ns", "test", "none")
    sets = tuple(CounterSet(name, (duration,), (Axis("log", 1e2, 1e9),)) for name in ("duration", "delay"))
    return Task(
        name="aggregate-tests",
        demo=True,
        public_key=design_keys.paillier.public_key.to_bytes(),
        counter_sets=sets,
        rotation=(("duration", "delay"),),
        samples_per_histogram=SAMPLES,
        min_samples=1,
        min_contributors=3,
        tokens_per_day=0,
        cover_rate=0.0,
    )


@pytest.fixture(scope="session")
def reports(design_keys: DesignKeys, task: Task) -> Reports:
    return Reports(design_keys, task, Encryptor(task.key(), task.profile(), exponent="short"))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_S)
