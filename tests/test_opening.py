from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest

from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import Slots, pack
from penrose_ray.errors import SumRuleError, WrongKeyError
from penrose_ray.histogram import BINS
from penrose_ray.opening import least_real_reports, open_sums, write_parquet
from penrose_ray.release.handover import Entry
from penrose_ray.seal import Contribution, cover, slots_of
from penrose_ray.types import BatchId, ClassId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

BATCH = BatchId(20_254)


@pytest.fixture(scope="module")
def seal_sum(make_task: Callable[..., Task]) -> Callable[..., Entry]:
    """A sum of sealed slots, as a shard makes it."""
    task = make_task()
    encryptor = Encryptor(task.key(), task.profile())

    def add_up(*reports: Slots, name: bytes = b"c", counter_set: int = 0, weight: int | None = None) -> Entry:
        total = Accumulator(task.key(), task.profile(), capacity=task.capacity())
        for slots in reports:
            total.add(encryptor.encrypt(pack(slots, task.profile())))
        return Entry(
            class_id=ClassId(name * 16),
            gpu_model="A100",
            counter_set=counter_set,
            weight=weight or len(reports),
            blob=total.to_bytes(),
            id_checksum=b"",
            ids_root=b"",
        )

    return add_up


def histogram(seed: int, samples: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).integers(0, BINS, samples)
    return np.bincount(drawn, minlength=BINS).astype(np.int64)


def slots(counts: np.ndarray) -> Slots:
    return slots_of(Contribution(0, counts, real=True), 100)


def test_an_opened_sum_is_the_sum_bin_by_bin(
    make_task: Callable[..., Task], design_keys: DesignKeys, seal_sum: Callable[..., Entry]
) -> None:
    parts = [histogram(1, 100), histogram(2, 100), histogram(3, 37)]
    sealed = seal_sum(*map(slots, parts), slots_of(cover(0), 100))

    opened = open_sums(make_task(), BATCH, [sealed], design_keys.paillier)

    (one,) = opened.sums
    assert one.counts.tolist() == sum(parts).tolist()
    assert (one.reports, one.real_reports, one.samples) == (4, 3, 237)
    assert (one.class_id, one.gpu_model, one.counter_set.name) == (b"c" * 16, "A100", "duration")
    assert opened.discarded == ()


def test_a_sum_that_breaks_the_rule_is_named_and_the_others_are_kept(
    make_task: Callable[..., Task], design_keys: DesignKeys, seal_sum: Callable[..., Entry]
) -> None:
    good = slots(histogram(1, 50))
    stuffed = Slots(good.bins, good.unfilled + 1, 1)
    boasting = Slots(good.bins, good.unfilled, 2)

    opened = open_sums(
        make_task(),
        BATCH,
        [
            seal_sum(good, name=b"a"),
            seal_sum(good, stuffed, name=b"b"),
            seal_sum(boasting, name=b"d"),
            seal_sum(good, name=b"e", weight=2),
        ],
        design_keys.paillier,
    )

    assert [each.class_id for each in opened.sums] == [b"a" * 16]
    assert [each.class_id for each in opened.discarded] == [b"b" * 16, b"d" * 16, b"e" * 16]
    assert all(isinstance(each.error, SumRuleError) for each in opened.discarded)
    assert "bins + unfilled = 201, expected 200" in str(opened.discarded[0].error)


@pytest.mark.parametrize("counter_set", [2, -1])
def test_a_sum_of_a_counter_set_that_the_task_does_not_have_is_discarded(
    make_task: Callable[..., Task], design_keys: DesignKeys, seal_sum: Callable[..., Entry], counter_set: int
) -> None:
    sealed = seal_sum(slots(histogram(1, 50)), counter_set=counter_set)

    opened = open_sums(make_task(), BATCH, [sealed], design_keys.paillier)

    assert opened.sums == ()
    assert opened.discarded[0].counter_set == f"#{counter_set}"


def test_covers_alone_are_too_few_real_reports(
    make_task: Callable[..., Task], design_keys: DesignKeys, seal_sum: Callable[..., Entry]
) -> None:
    opened = open_sums(make_task(), BATCH, [seal_sum(slots_of(cover(0), 100))], design_keys.paillier)

    assert opened.sums == ()
    assert "0 real reports, 1 are needed" in str(opened.discarded[0].error)


def test_the_least_number_of_real_reports_outnumbers_hostile_clients(make_task: Callable[..., Task]) -> None:
    fleet = {"demo": False, "min_contributors": 200, "tokens_per_day": 32, "hostile_clients": 10}

    assert least_real_reports(make_task()) == 1
    assert least_real_reports(make_task(**fleet)) == 200 + 320
    assert least_real_reports(make_task(**fleet, reports_per_class=2)) == 400 + 320
    assert least_real_reports(make_task(**fleet, reports_per_class=0)) == 32 * 200 + 320


class OtherKey:
    fingerprint = "f" * 64

    def decrypt_many(self, blobs: object, profile: object) -> list[tuple[int, ...]]:
        raise AssertionError(f"nothing may be decrypted: {blobs}, {profile}")


def test_a_release_for_another_key_is_not_touched(
    make_task: Callable[..., Task], seal_sum: Callable[..., Entry]
) -> None:
    with pytest.raises(WrongKeyError, match="f" * 64):
        open_sums(make_task(), BATCH, [seal_sum(slots(histogram(1, 5)))], OtherKey())


def test_a_release_file_explains_itself(
    make_task: Callable[..., Task], design_keys: DesignKeys, seal_sum: Callable[..., Entry], tmp_path: Path
) -> None:
    task = make_task()
    counts = histogram(9, 80)
    sealed = [seal_sum(slots(counts)), seal_sum(slots(counts), name=b"k", counter_set=1)]
    path = tmp_path / "new" / "release.parquet"

    write_parquet([open_sums(task, BATCH, sealed, design_keys.paillier)], path)

    table = pq.read_table(path)
    assert table.schema.metadata[b"format"] == b"penrose-release"
    assert table.schema.metadata[b"format_version"] == b"2"
    first, second = table.to_pylist()
    assert first["bins"] == counts.tolist()
    assert first["axes"] == [{"scale": "log", "low": 100.0, "high": 1e9, "bins": 128}]
    assert second["categories"] == ["gemm", "conv", "other"]
    assert first["task_id"] == task.task_id.hex()
    assert (first["demo"], first["samples"], first["batch"]) == (True, 80, BATCH)
    assert first["batch_start_s"] == BATCH * task.batch_s


def test_a_failed_write_leaves_the_old_file_and_nothing_beside_it(
    make_task: Callable[..., Task],
    design_keys: DesignKeys,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "release.parquet"
    empty = open_sums(make_task(), BATCH, [], design_keys.paillier)
    write_parquet([empty], path)
    before = path.read_bytes()
    assert path.stat().st_mode & 0o444 == 0o444

    def full(_descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_parquet([empty], path)

    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
