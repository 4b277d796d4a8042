from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.aggregate.routing import BUCKETS, bucket_of, owner
from penrose_ray.types import BucketId, ReportId

SHARDS = [f"shard-{number}" for number in range(8)]


def table(shards: list[str]) -> list[str]:
    return [owner(BucketId(bucket), shards) for bucket in range(BUCKETS)]


def test_hashed_ids_spread_over_all_buckets() -> None:
    ids = [ReportId(hashlib.sha256(bytes([a, b])).digest()) for a in range(64) for b in range(64)]
    counts = [0] * BUCKETS
    for report_id in ids:
        counts[bucket_of(report_id)] += 1
    expected = len(ids) / BUCKETS
    chi_squared = sum((count - expected) ** 2 / expected for count in counts)
    assert chi_squared < 330.5  # the 99.9 % quantile at 255 degrees of freedom


@given(st.sets(st.integers(0, 1000), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_the_names_does_not_matter(numbers: set[int], random: object) -> None:
    names = [f"shard-{number}" for number in sorted(numbers)]
    shuffled = sorted(names, key=lambda _: random.random())  # type: ignore[attr-defined]
    assert table(names) == table(shuffled)


@pytest.mark.parametrize("count", range(1, 8))
def test_a_new_shard_takes_its_share_and_moves_nothing_else(count: int) -> None:
    before, after = table(SHARDS[:count]), table(SHARDS[: count + 1])
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {SHARDS[count]}
    assert 0.5 * BUCKETS / (count + 1) < len(moved) < 1.6 * BUCKETS / (count + 1)


def test_another_process_with_another_hash_seed_agrees() -> None:
    program = (
        "from penrose_ray.aggregate.routing import BUCKETS, owner\n"
        f"print(','.join(owner(bucket, {SHARDS}) for bucket in range(BUCKETS)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": "7"},
        timeout=300,
    )
    assert result.stdout.strip().split(",") == table(SHARDS)


def test_no_shard_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one shard"):
        owner(BucketId(0), [])
