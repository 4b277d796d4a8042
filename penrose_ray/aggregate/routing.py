"""Which shard keeps a report: report id -> one of 256 buckets -> a shard by rendezvous hashing.

Rendezvous (highest random weight) hashing after Thaler and Ravishankar (1998): when a shard joins or leaves,
only the buckets that it gains or had move.
"""

from __future__ import annotations

import functools
import hashlib
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penrose_ray.types import BucketId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.types import ReportId

BUCKETS = 256


def bucket_of(report_id: ReportId) -> BucketId:
    """The bucket of a report: the first byte of its id, which is a hash or random."""
    return BucketId(report_id[0])


def owner(bucket: BucketId, shards: Sequence[str]) -> str:
    """The shard, of these names, that keeps `bucket`; the order of the names does not matter.

    Raises:
        ValueError: there is no shard.
    """
    if not shards:
        raise ValueError("a bucket needs at least one shard")
    return max(shards, key=lambda shard: (_score(bucket, shard), shard))


@functools.lru_cache(maxsize=1 << 16)
def _score(bucket: BucketId, shard: str) -> bytes:
    return hashlib.blake2b(bucket.to_bytes(2, "big") + shard.encode(), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Table:
    """Who keeps which bucket; a change makes a table of a later epoch."""

    epoch: int
    owners: tuple[str, ...]
    """Shard of each bucket."""

    @classmethod
    def of(cls, shards: Sequence[str], epoch: int = 1) -> Table:
        """The table that rendezvous hashing gives these shards."""
        return cls(epoch, tuple(owner(BucketId(bucket), shards) for bucket in range(BUCKETS)))

    def owner_of(self, report_id: ReportId) -> str:
        """The shard that takes this report."""
        return self.owners[bucket_of(report_id)]

    def buckets_of(self, shard: str) -> frozenset[BucketId]:
        """The buckets of a shard."""
        return frozenset(BucketId(bucket) for bucket, name in enumerate(self.owners) if name == shard)

    def moved(self, buckets: frozenset[BucketId], target: str, epoch: int) -> Table:
        """The table of a later epoch in which `target` has these buckets."""
        if epoch <= self.epoch:
            raise ValueError(f"epoch {epoch} does not follow {self.epoch}")
        owners = (target if bucket in buckets else name for bucket, name in enumerate(self.owners))
        return Table(epoch, tuple(owners))

    def differences(self, wanted: Table) -> list[tuple[str, str, frozenset[BucketId]]]:
        """Moves (source, target, buckets) that lead to the owners of `wanted`, in a fixed order."""
        moves: dict[tuple[str, str], set[BucketId]] = defaultdict(set)
        for bucket, pair in enumerate(zip(self.owners, wanted.owners, strict=True)):
            if pair[0] != pair[1]:
                moves[pair].add(BucketId(bucket))
        return [(source, target, frozenset(moves[source, target])) for source, target in sorted(moves)]
