"""The sums of one shard: those in use are in memory, the others are loaded from the journal when needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gmpy2

from penrose_ray.aggregate.arrival import CHECKSUM_BYTES, SumKey
from penrose_ray.aggregate.rows import SumRecord
from penrose_ray.aggregate.score import Score, Tier, fresh
from penrose_ray.crypto.accumulate import Accumulator, validate
from penrose_ray.crypto.ciphertext import join, split
from penrose_ray.errors import CiphertextError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penrose_ray.aggregate.arrival import Row
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, ReportId


def id_checksum(ids: Iterable[ReportId]) -> int:
    """XOR of the SHA-256 of each id: the same for the same set in any order."""
    total = 0
    for report_id in ids:
        total ^= int.from_bytes(hashlib.sha256(report_id).digest(), "big")
    return total


@dataclass(slots=True)
class _Sum:
    """A sum in memory."""

    accumulator: Accumulator
    checksum: int
    score: Score
    stored: bool = False
    """Whether the journal has it as it is."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What rows of one key come to."""

    key: SumKey
    accumulator: Accumulator
    checksum: int
    ids: frozenset[ReportId]


class Sums:
    """Running sums by class, counter set and batch.

    `load` fetches a stored sum; `hour` says how many hours have passed since the epoch.
    """

    def __init__(
        self, task: Task, load: Callable[[SumKey], SumRecord | None], hour: Callable[[], int]
    ) -> None:
        self._key, self._profile, self._capacity = task.key(), task.profile(), task.capacity()
        self._load, self._hour = load, hour
        self._hot: dict[SumKey, _Sum] = {}
        self._gone: set[SumKey] = set()
        self._checked: dict[SumKey, _Part] = {}

    def _parts(self, rows: Iterable[Row]) -> list[_Part]:
        return [self._part(key, group) for key, group in _by_key(rows).items()]

    def _part(self, key: SumKey, rows: Sequence[Row]) -> _Part:
        accumulator = self._accumulator(room=len(rows))
        accumulator.add_many(row.arrival.blob for row in rows)
        ids = frozenset(row.arrival.report_id for row in rows)
        return _Part(key, accumulator, id_checksum(ids), ids)

    def _accumulator(self, room: int = 0) -> Accumulator:
        return Accumulator(self._key, self._profile, capacity=max(self._capacity, room))

    def check(self, rows: Sequence[Row]) -> dict[ReportId, CiphertextError]:
        """What is wrong with which of these rows' ciphertexts.

        A product is a unit exactly when its factors are, so the products that `add` needs anyway are checked;
        they are kept for it. Only a group with a fault is looked at blob by blob.
        """
        self._checked = {}
        try:
            parts = self._parts(rows)
        except CiphertextError:
            parts = None
        if parts is not None and not self._faults([part.accumulator.to_bytes() for part in parts]):
            self._checked = {part.key: part for part in parts}
            return {}
        faults = self._faults([row.arrival.blob for row in rows])
        return {rows[at].arrival.report_id: fault for at, fault in faults.items()}

    def _faults(self, blobs: Sequence[bytes]) -> dict[int, CiphertextError]:
        return validate(self._key, self._profile, blobs)

    def add(self, rows: Iterable[Row]) -> None:
        """Add committed rows, with the products of `check` where they are still of the same rows.

        Raises:
            CapacityError: a sum would overflow.
            CiphertextError: a blob of wrong length or range.
        """
        for key, group in _by_key(rows).items():
            part = self._checked.get(key)
            if part is None or part.ids != {row.arrival.report_id for row in group}:
                part = self._part(key, group)
            self._add(part)
        self._checked = {}

    def _add(self, part: _Part) -> None:
        total = self._touch(part.key)
        if total is None:
            total = self._hot[part.key] = _Sum(self._accumulator(), 0, fresh(self._hour()))
            self._gone.discard(part.key)
        total.accumulator.merge(part.accumulator.to_bytes(), part.accumulator.weight)
        total.checksum ^= part.checksum
        total.stored = False

    def remove(self, rows: Iterable[Row]) -> None:
        """Take rows out of their sums again: multiply by the inverse of their product.

        Raises:
            ValueError: a row was not in its sum.
        """
        for part in self._parts(rows):
            total = self._touch(part.key)
            left = total.accumulator.weight - part.accumulator.weight if total else -1
            if total is None or left < 0:
                raise ValueError(f"{part.accumulator.weight} reports to take out of a smaller sum {part.key}")
            if left == 0:
                del self._hot[part.key]
                self._gone.add(part.key)
                continue
            accumulator = self._accumulator()
            accumulator.merge(self._quotient(total.accumulator, part.accumulator), left)
            self._hot[part.key] = _Sum(accumulator, total.checksum ^ part.checksum, total.score)

    def _quotient(self, total: Accumulator, part: Accumulator) -> bytes:
        n_squared = self._key.n_squared
        pairs = zip(
            split(total.to_bytes(), self._profile), split(part.to_bytes(), self._profile), strict=True
        )
        return join([c * gmpy2.invert(p, n_squared) % n_squared for c, p in pairs], self._profile)

    def _touch(self, key: SumKey) -> _Sum | None:
        total = self._hot.get(key)
        if total is None and key not in self._gone and (record := self._load(key)):
            accumulator = self._accumulator()
            accumulator.merge(record.blob, record.weight)
            checksum = int.from_bytes(record.id_checksum, "big")
            total = self._hot[key] = _Sum(accumulator, checksum, record.score, stored=True)
        if total is not None and (score := total.score.touched(self._hour())) != total.score:
            total.score, total.stored = score, False
        return total

    def record(self, key: SumKey) -> SumRecord | None:
        """A sum as it is now; this counts as a use."""
        total = self._touch(key)
        return _record(key, total) if total else None

    def changed(self) -> tuple[list[SumRecord], list[SumKey]]:
        """Sums that the journal does not have as they are, and keys that it has and that are gone."""
        return [_record(key, each) for key, each in self._hot.items() if not each.stored], list(self._gone)

    def note_stored(self) -> None:
        """The journal has everything now: forget the sums that are not hot any more."""
        self._gone.clear()
        hour = self._hour()
        self._hot = {key: each for key, each in self._hot.items() if each.score.tier(hour) is Tier.HOT}
        for each in self._hot.values():
            each.stored = True

    def forget(self) -> None:
        """Drop what is in memory: the journal is the truth."""
        self._hot.clear()
        self._gone.clear()

    def forget_batch(self, batch: BatchId) -> None:
        """Drop the sums of a batch from memory."""
        self._hot = {key: each for key, each in self._hot.items() if key.batch != batch}

    def __len__(self) -> int:
        return len(self._hot)


def _record(key: SumKey, total: _Sum) -> SumRecord:
    checksum = total.checksum.to_bytes(CHECKSUM_BYTES, "big")
    return SumRecord(key, total.accumulator.weight, total.accumulator.to_bytes(), checksum, total.score)


def _by_key(rows: Iterable[Row]) -> dict[SumKey, list[Row]]:
    grouped: dict[SumKey, list[Row]] = {}
    for row in rows:
        grouped.setdefault(row.key, []).append(row)
    return grouped
