"""The sums of one shard: those in use are in memory, the others are loaded from the journal when needed."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from penrose_ray.aggregate.arrival import CHECKSUM_BYTES
from penrose_ray.aggregate.rows import SumRecord
from penrose_ray.aggregate.score import Score, Tier, fresh
from penrose_ray.errors import CiphertextError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.crypto.accumulate import Accumulators
    from penrose_ray.crypto.plain import PlainAccumulators
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId, ReportId

_ROWS_A_KEY: Final = 4


def id_checksum(ids: Iterable[ReportId]) -> int:
    """XOR of the SHA-256 of each id: the same for the same set in any order."""
    total = 0
    for report_id in ids:
        total ^= _checksum(report_id)
    return total


def _checksum(report_id: ReportId) -> int:
    return int.from_bytes(hashlib.sha256(report_id).digest(), "big")


@dataclass(frozen=True, slots=True)
class Addends:
    """Reports as they are added up; the lists are parallel."""

    groups: Mapping[SumKey, Sequence[int]]
    """Places of the reports of each sum; a report is in one or in none."""
    ids: Sequence[ReportId]
    blobs: Sequence[bytes]

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Self:
        """These rows, each to the sum of its key."""
        groups: dict[SumKey, list[int]] = {}
        for at, row in enumerate(rows):
            groups.setdefault(row.key, []).append(at)
        return cls(groups, [row.arrival.report_id for row in rows], [row.arrival.blob for row in rows])


@dataclass(slots=True)
class _Sum:
    """What is known of a sum in memory beside its ciphertexts."""

    checksum: int
    score: Score
    stored: bool = False
    """Whether the journal has it as it is."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What checked reports of one key come to."""

    ids: frozenset[ReportId]
    blob: bytes


class Sums:
    """Running sums by class, counter set and batch.

    `load` fetches a stored sum; `hour` says how many hours have passed since the epoch.
    """

    def __init__(
        self, task: Task, load: Callable[[SumKey], SumRecord | None], hour: Callable[[], int]
    ) -> None:
        self._cipher = task.cipher()
        self._load, self._hour = load, hour
        self._validator = self._cipher.validator()
        self._checks_products = self._cipher.checks_products
        self._totals: Accumulators[SumKey] | PlainAccumulators[SumKey]
        self._totals = self._cipher.accumulators(task.capacity())
        self._hot: dict[SumKey, _Sum] = {}
        self._gone: set[SumKey] = set()
        self._checked: dict[SumKey, _Part] = {}

    def check(self, addends: Addends) -> dict[int, CiphertextError]:
        """What is wrong with which of these ciphertexts, by place.

        A product is a unit exactly when its factors are. Without the native kernel, and with few keys, it is
        cheaper to check the products that `add` needs anyway; they are kept for it.
        """
        self._checked = {}
        groups, blobs = addends.groups, addends.blobs
        if self._checks_products and len(groups) * _ROWS_A_KEY <= len(blobs):
            parts = self._parts(addends)
            if parts and not self._validator.faults([part.blob for part in parts.values()]):
                self._checked = parts
                return {}
        return self._validator.faults(blobs)

    def _parts(self, addends: Addends) -> dict[SumKey, _Part]:
        """The product of each key; nothing if a blob has not even the right length or range."""
        products: Accumulators[SumKey] | PlainAccumulators[SumKey]
        products = self._cipher.accumulators(len(addends.blobs))
        try:
            products.add_groups(addends.groups, addends.blobs)
        except CiphertextError:
            return {}
        return {
            key: _Part(frozenset(addends.ids[at] for at in places), products.to_bytes(key))
            for key, places in addends.groups.items()
        }

    def add(self, addends: Addends) -> None:
        """Add committed reports, with the products of `check` where they are still of the same reports.

        Raises:
            CapacityError: a sum would overflow.
            CiphertextError: a blob of wrong length or range.
        """
        parts, self._checked = self._checked, {}
        groups, ids, hour = addends.groups, addends.ids, self._hour()
        totals = [self._touch(key, hour) or self._begin(key, hour) for key in groups]
        rest = self._merge(groups, ids, parts) if parts else groups
        if rest:
            self._totals.add_groups(rest, addends.blobs)
        checksums = [_checksum(report_id) for report_id in ids]
        for total, places in zip(totals, groups.values(), strict=True):
            for at in places:
                total.checksum ^= checksums[at]
            total.stored = False

    def _merge(
        self, groups: Mapping[SumKey, Sequence[int]], ids: Sequence[ReportId], parts: Mapping[SumKey, _Part]
    ) -> dict[SumKey, Sequence[int]]:
        """Add the parts that hold the same reports; the groups that are left."""
        rest: dict[SumKey, Sequence[int]] = {}
        for key, places in groups.items():
            part = parts.get(key)
            if part and part.ids == {ids[at] for at in places}:
                self._totals.merge(key, part.blob, len(places))
            else:
                rest[key] = places
        return rest

    def _begin(self, key: SumKey, hour: int) -> _Sum:
        self._gone.discard(key)
        total = self._hot[key] = _Sum(0, fresh(hour))
        return total

    def remove(self, addends: Addends) -> None:
        """Take reports out of their sums again: multiply by the inverse of their product.

        Raises:
            ValueError: a report was not in its sum.
        """
        hour = self._hour()
        for key, part in self._parts(addends).items():
            total, left = self._touch(key, hour), self._totals.weight(key) - len(part.ids)
            if total is None or left < 0:
                raise ValueError(f"{len(part.ids)} reports to take out of a smaller sum {key}")
            blob = self._cipher.difference(self._totals.to_bytes(key), part.blob)
            self._totals.discard(key)
            if left:
                self._totals.merge(key, blob, left)
                total.checksum ^= id_checksum(part.ids)
                total.stored = False
            else:
                del self._hot[key]
                self._gone.add(key)

    def _touch(self, key: SumKey, hour: int) -> _Sum | None:
        total = self._hot.get(key)
        if total is None and key not in self._gone and (record := self._load(key)):
            self._totals.merge(key, record.blob, record.weight)
            checksum = int.from_bytes(record.id_checksum, "big")
            total = self._hot[key] = _Sum(checksum, record.score, stored=True)
        if total is not None and (score := total.score.touched(hour)) is not total.score:
            total.score, total.stored = score, False
        return total

    def record(self, key: SumKey) -> SumRecord | None:
        """A sum as it is now; this counts as a use."""
        return self._record(key, total) if (total := self._touch(key, self._hour())) else None

    def _record(self, key: SumKey, total: _Sum) -> SumRecord:
        checksum = total.checksum.to_bytes(CHECKSUM_BYTES, "big")
        return SumRecord(key, self._totals.weight(key), self._totals.to_bytes(key), checksum, total.score)

    def changed(self) -> tuple[list[SumRecord], list[SumKey]]:
        """Sums that the journal does not have as they are, and keys that it has and that are gone."""
        changed = [self._record(key, total) for key, total in self._hot.items() if not total.stored]
        return changed, list(self._gone)

    def note_stored(self) -> None:
        """The journal has everything now: forget the sums that are not hot any more."""
        self._gone.clear()
        hour = self._hour()
        for key, total in list(self._hot.items()):
            total.stored = True
            if total.score.tier(hour) is not Tier.HOT:
                self._drop(key)

    def forget(self) -> None:
        """Drop what is in memory: the journal is the truth."""
        for key in list(self._hot):
            self._drop(key)
        self._gone.clear()

    def forget_batch(self, batch: BatchId) -> None:
        """Drop the sums of a batch from memory."""
        for key in [key for key in self._hot if key.batch == batch]:
            self._drop(key)

    def _drop(self, key: SumKey) -> None:
        del self._hot[key]
        self._totals.discard(key)

    def __len__(self) -> int:
        return len(self._hot)
