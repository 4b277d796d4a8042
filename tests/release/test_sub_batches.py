from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.crypto.packing import Slots, pack
from penrose_ray.histogram import median_of_means
from penrose_ray.opening import open_sums, write_parquet
from penrose_ray.release.handover import build
from penrose_ray.release.sub_batches import bundled

if TYPE_CHECKING:
    from pathlib import Path

    from release.conftest import Parts

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task


class Weight:
    def __init__(self, weight: int) -> None:
        self.weight = weight


@given(
    weights=st.lists(st.integers(1, 30), min_size=1, max_size=30),
    asked=st.integers(1, 12),
    needed=st.integers(1, 20),
)
def test_every_sub_batch_passes_or_there_is_only_one(
    task: Task, weights: list[int], asked: int, needed: int
) -> None:
    changed = msgspec.structs.replace(task, sub_batches=asked, min_contributors=needed)
    bundles = bundled(changed, [Weight(each) for each in weights])
    sums = [sum(each.weight for each in bundle) for bundle in bundles]
    assert sum(sums) == sum(weights)
    assert 1 <= len(bundles) <= asked
    assert len(bundles) == 1 or min(sums) >= needed


def test_a_class_with_enough_reports_gets_all_sub_batches(task: Task, parts: Parts) -> None:
    changed = msgspec.structs.replace(task, sub_batches=3)
    many = [parts.one("a", 5 + n) for n in range(4)]
    entries = build(changed, many, lambda _: "GPU", parts.encryptor).entries
    assert [(each.sub_batch, each.weight) for each in entries] == [(0, 8), (1, 7), (2, 11)]
    few = [parts.one("a", 3), parts.one("a", 4), parts.one("a", 2)]
    assert [each.weight for each in build(changed, few, lambda _: "GPU", parts.encryptor).entries] == [9]


@given(
    clean=st.lists(
        st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(sum), min_size=2, max_size=15
    ),
    hostile=st.lists(st.lists(st.integers(0, 10**9), min_size=4, max_size=4).filter(sum), max_size=14),
    order=st.randoms(use_true_random=False),
)
def test_fewer_than_half_hostile_sums_move_a_mean_no_further_than_the_clean_ones_range(
    clean: list[list[int]], hostile: list[list[int]], order: object
) -> None:
    """h clients with c tokens spoil at most h c sub-batches; here these are fewer than half."""
    values = np.array([1.0, 2.0, 4.0, 8.0])
    hostile = hostile[: len(clean) - 1]
    mixed = clean + hostile
    order.shuffle(mixed)  # type: ignore[attr-defined]
    means = [np.dot(each, values) / sum(each) for each in clean]
    found = median_of_means(mixed, values)
    assert min(means) - 1e-9 <= found <= max(means) + 1e-9


def test_the_plain_mean_is_moved_and_the_median_of_means_is_not() -> None:
    clean = [[10, 10, 0, 0]] * 4
    spoiled = [[0, 0, 0, 10_000]]
    values = [1.0, 2.0, 4.0, 8.0]
    assert median_of_means(clean + spoiled, values) == 1.5
    assert np.dot(np.sum(clean + spoiled, axis=0), values) / np.sum(clean + spoiled) > 7.9


def test_without_samples_there_is_no_mean() -> None:
    assert math.isnan(median_of_means([[0, 0]], [1.0, 2.0]))


def test_a_sub_batch_that_fails_its_check_is_dropped_named_and_counted(
    task: Task, parts: Parts, design_keys: DesignKeys
) -> None:
    """A hostile report claims 50 samples more than H: its sub-batch is lost, the others are opened."""
    changed = msgspec.structs.replace(task, sub_batches=3)
    bins = np.zeros(128, np.int64)
    bins[0] = 150
    lie = parts.encryptor.encrypt(pack(Slots(bins, 0, 1), task.profile()))
    many = [parts.one("a", 6), parts.one("a", 7), parts.one("a", 8)]
    entries = build(changed, many, lambda _: "GPU", parts.encryptor).entries
    spoiled = msgspec.structs.replace(entries[1], blob=parts.added(entries[1].blob, lie), weight=8)
    opening = open_sums(changed, many[0].batch, [entries[0], spoiled, entries[2]], design_keys.paillier)
    assert len(opening.sums) == 2
    (dropped,) = opening.discarded
    assert (dropped.class_id, dropped.sub_batch) == (entries[1].class_id, 1)
    assert "expected 800" in dropped.error.message


def test_a_file_tells_robust_means_what_was_dropped_and_what_was_kept_under_load(
    task: Task, parts: Parts, design_keys: DesignKeys, tmp_path: Path
) -> None:
    """Two of three sub-batches lie in bin 3 and one in bin 90; a fourth breaks the sum rule."""
    changed = msgspec.structs.replace(task, sub_batches=4, noise_sigma=0.0)
    many = [
        replace(part, keep_share=0.5)
        for part in (parts.one("a", 6), parts.one("a", 7), parts.one("a", 0, 8), parts.one("a", 9))
    ]
    entries = list(build(changed, many, lambda _: "GPU", parts.encryptor).entries)
    place = next(at for at, each in enumerate(entries) if each.weight == 9)
    entries[place] = msgspec.structs.replace(entries[place], weight=8)
    opening = open_sums(changed, many[0].batch, entries, design_keys.paillier, spent_epsilon=1.5)
    write_parquet([opening], tmp_path / "release.parquet")

    table = pq.read_table(tmp_path / "release.parquet")
    rows = table.to_pylist()
    axis = task.counter_sets[0].axes[0]
    assert len(rows) == 3
    assert {each["sub_batch"] for each in rows} == {0, 1, 2, 3} - {entries[place].sub_batch}
    assert {each["robust_means"][0] for each in rows} == {axis.centres()[3]}
    assert [each["estimated_samples"] for each in rows] == [2 * each["samples"] for each in rows]
    assert {(each["keep_share"], each["spent_epsilon"]) for each in rows} == {(0.5, 1.5)}
    assert {each["sampling_interval"] for each in rows} == {task.sampling_interval}
    (dropped,) = json.loads(table.schema.metadata[b"discarded"])
    assert (dropped["sub_batch"], dropped["code"]) == (entries[place].sub_batch, "sum-rule")
