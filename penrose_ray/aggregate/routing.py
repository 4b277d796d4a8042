"""Which shard keeps a report: report id -> one of 256 buckets -> a shard by rendezvous hashing.

Rendezvous (highest random weight) hashing after Thaler and Ravishankar (1998): when a shard joins or leaves,
only the buckets that it gains or had move.
"""

from __future__ import annotations

import functools
import hashlib
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
