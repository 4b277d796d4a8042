"""The sums of one shard, in memory: a ciphertext product, a weight and a checksum of ids for each key."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from penrose_ray.aggregate.arrival import PartialSum
from penrose_ray.crypto.accumulate import Accumulator

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, ReportId

_CHECKSUM_BYTES = 32


def id_checksum(ids: Iterable[ReportId]) -> bytes:
    """XOR of the SHA-256 of each id, 32 bytes: the same for the same set in any order."""
    total = 0
    for report_id in ids:
        total ^= int.from_bytes(hashlib.sha256(report_id).digest(), "big")
    return total.to_bytes(_CHECKSUM_BYTES, "big")


class Sums:
    """Running sums by class, counter set and batch."""

    def __init__(self, task: Task) -> None:
        self._key, self._profile, self._capacity = task.key(), task.profile(), task.capacity()
        self._sums: dict[SumKey, tuple[Accumulator, int]] = {}

    def add(self, rows: Sequence[Row]) -> None:
        """Add committed rows.

        Raises:
            CapacityError: a sum would overflow.
            CiphertextError: a blob that was never checked.
        """
        grouped: dict[SumKey, list[Row]] = {}
        for row in rows:
            grouped.setdefault(row.key, []).append(row)
        for key, part in grouped.items():
            accumulator, checksum = self._sums.get(key) or (self._accumulator(), 0)
            accumulator.add_many(row.arrival.blob for row in part)
            added = int.from_bytes(id_checksum(row.arrival.report_id for row in part), "big")
            self._sums[key] = accumulator, checksum ^ added

    def _accumulator(self) -> Accumulator:
        return Accumulator(self._key, self._profile, capacity=self._capacity)

    def of(self, batch: BatchId) -> list[PartialSum]:
        """Sums of a batch, ordered by class and counter set."""
        return [
            PartialSum(
                key.class_id,
                key.counter_set,
                batch,
                accumulator.weight,
                accumulator.to_bytes(),
                checksum.to_bytes(_CHECKSUM_BYTES, "big"),
            )
            for key, (accumulator, checksum) in sorted(self._sums.items())
            if key.batch == batch
        ]

    def weights(self) -> dict[SumKey, int]:
        """Reports in each sum."""
        return {key: accumulator.weight for key, (accumulator, _) in self._sums.items()}

    def __len__(self) -> int:
        return len(self._sums)
