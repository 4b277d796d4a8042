"""Partial sums of known contents under the test key."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.aggregate.arrival import PartialSum
from penrose_ray.aggregate.sums import id_checksum
from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import Slots, check_sum, pack, unpack
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.release.issuing import IssuerKeys
from penrose_ray.task import Task
from penrose_ray.types import BatchId, ClassId, ReportId

if TYPE_CHECKING:
    from penrose_ray.crypto.keyfile import DesignKeys

SAMPLES = 100


class Parts:
    """Makes partial sums and opens entries."""

    def __init__(self, keys: DesignKeys, task: Task) -> None:
        self._keys, self._task = keys, task
        self.encryptor = Encryptor(task.key(), task.profile(), exponent="short")
        bins = np.zeros((2, 128), dtype=np.int64)
        bins[0, 3], bins[1, 90] = SAMPLES, SAMPLES
        self._blobs = [self.encryptor.encrypt(pack(Slots(row, 0, 1), task.profile())) for row in bins]

    def one(self, name: str, low: int, high: int = 0, *, counter_set: int = 0, batch: int = 7) -> PartialSum:
        """`low` reports with all samples in bin 3 and `high` with all in bin 90."""
        accumulator = Accumulator(self._task.key(), self._task.profile(), capacity=10**6)
        accumulator.add_many([self._blobs[0]] * low + [self._blobs[1]] * high)
        ids = tuple(
            ReportId(hashlib.sha256(f"{name} {counter_set} {batch} {low} {high} {n}".encode()).digest())
            for n in range(low + high)
        )
        return PartialSum(
            class_id(name),
            counter_set,
            BatchId(batch),
            low + high,
            accumulator.to_bytes(),
            id_checksum(ids).to_bytes(32, "big"),
            ids=ids,
        )

    def of_ids(self, class_id: ClassId, batch: BatchId, ids: tuple[ReportId, ...]) -> PartialSum:
        """A sum of reports with these ids, all samples in bin 3."""
        blob = self.one("any", len(ids)).blob
        return PartialSum(class_id, 0, batch, len(ids), blob, id_checksum(ids).to_bytes(32, "big"), ids=ids)

    def of_blob(self, blob: bytes, weight: int) -> PartialSum:
        """A sum that is given."""
        return replace(self.one("a", weight), blob=blob)

    def added(self, blob: bytes, report: bytes) -> bytes:
        """A sum with one report more."""
        accumulator = Accumulator(self._task.key(), self._task.profile(), capacity=10**6)
        accumulator.add_many([blob, report])
        return accumulator.to_bytes()

    def opened(self, blob: bytes, weight: int) -> tuple[int, int]:
        """How many reports have their samples in bins 3 and 90."""
        profile = self._task.profile()
        slots = unpack(self._keys.paillier.decrypt(blob, profile), profile)
        check_sum(slots, weight=weight, samples_per_histogram=SAMPLES)
        return int(slots.bins[3]) // SAMPLES, int(slots.bins[90]) // SAMPLES


def class_id(name: str) -> ClassId:
    return ClassId(hashlib.sha256(name.encode()).digest()[:16])


@pytest.fixture(scope="session")
def task(design_keys: DesignKeys) -> Task:
    duration = Counter("duration", "ns", "test", "none")
    return Task(
        name="release-tests",
        demo=True,
        public_key=design_keys.paillier.public_key.to_bytes(),
        counter_sets=(CounterSet("duration", (duration,), (Axis("log", 1e2, 1e9),)),),
        rotation=(("duration",),),
        samples_per_histogram=SAMPLES,
        min_contributors=5,
        tokens_per_day=0,
        cover_rate=0.0,
    )


@pytest.fixture(scope="session")
def parts(design_keys: DesignKeys, task: Task) -> Parts:
    return Parts(design_keys, task)


@pytest.fixture(scope="session")
def issuer_keys() -> IssuerKeys:
    """Token keys of two days."""
    return IssuerKeys.generate(20_000, 2)
