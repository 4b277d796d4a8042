"""A fleet with a planted truth, through encryption, addition, opening and the file, comes back right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.frames import open_release
from penrose_ray.analyse.joint import quadrants
from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import pack
from penrose_ray.histogram import count
from penrose_ray.opening import open_sums, write_parquet
from penrose_ray.release.handover import Entry
from penrose_ray.seal import Contribution, cover, slots_of
from penrose_ray.types import BatchId, ClassId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.histogram import CounterSet
    from penrose_ray.task import Task

CLIENTS = 24
SAMPLES = 400
# shares of (both, tensor only, DRAM only, idle)
TRAINING = (0.34, 0.38, 0.18, 0.10)  # tensor cores alone 38 % of the time
INFERENCE = (0.41, 0.29, 0.21, 0.09)  # DRAM bandwidth under-used 29 % of the time while tensor cores work


def launches(random: np.random.Generator, shares: tuple[float, ...], samples: int) -> NDArray[np.float64]:
    """(DRAM %, tensor %) of sampled launches, spread inside their quadrant."""
    quadrant = random.choice(4, samples, p=shares)
    dram_high, tensor_high = np.isin(quadrant, (0, 2)), np.isin(quadrant, (0, 1))
    high, low = random.uniform(55, 100, (2, samples)), random.uniform(0, 45, (2, samples))
    return np.stack([np.where(dram_high, high[0], low[0]), np.where(tensor_high, high[1], low[1])], axis=1)


def summed(
    task: Task, random: np.random.Generator, shares: tuple[float, ...], name: bytes, encryptor: Encryptor
) -> tuple[Entry, NDArray[np.int64]]:
    """The encrypted sum of a class over all clients and two cover reports, and the plain sum."""
    total, plain = Accumulator(task.key(), task.profile(), capacity=task.capacity()), np.zeros(128, np.int64)
    for _ in range(CLIENTS):
        counts = count(task.counter_sets[0], launches(random, shares, SAMPLES))
        plain += counts
        slots = slots_of(Contribution(0, counts, real=True), SAMPLES)
        total.add(encryptor.encrypt(pack(slots, task.profile())))
    for _ in range(2):
        total.add(encryptor.encrypt(pack(slots_of(cover(0), SAMPLES), task.profile())))
    return Entry(
        class_id=ClassId(name * 16),
        gpu_model="A100",
        counter_set=0,
        weight=CLIENTS + 2,
        blob=total.to_bytes(),
        id_checksum=b"",
        ids_root=b"",
    ), plain


@pytest.fixture(scope="module")
def released(
    make_task: Callable[..., Any],
    design_keys: DesignKeys,
    joint: CounterSet,
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    task = make_task(joint, demo=True, tokens_per_day=0, min_contributors=20, samples_per_histogram=SAMPLES)
    random, encryptor = np.random.default_rng(38), Encryptor(task.key(), task.profile())
    training, plain = summed(task, random, TRAINING, b"t", encryptor)
    inference, _ = summed(task, random, INFERENCE, b"i", encryptor)
    path: Path = tmp_path_factory.mktemp("truth") / "release.parquet"
    opening = open_sums(task, BatchId(20_000), [training, inference], design_keys.paillier)
    write_parquet([opening], path)
    return open_release(path), plain


def test_release_holds_the_sum_of_the_plain_histograms(
    released: tuple[pd.DataFrame, NDArray[np.int64]],
) -> None:
    frame, plain = released
    rows = frame[frame["class_id"] == (b"t" * 16).hex()]
    assert rows["count"].tolist() == plain.tolist()
    assert (rows["reports"].iloc[0], rows["real_reports"].iloc[0]) == (CLIENTS + 2, CLIENTS)


@pytest.mark.parametrize(("name", "truth"), [(b"t", TRAINING), (b"i", INFERENCE)])
def test_planted_shares_lie_in_the_printed_interval(
    released: tuple[pd.DataFrame, NDArray[np.int64]], name: bytes, truth: tuple[float, ...]
) -> None:
    table = quadrants(released[0])
    found = table[table["class_id"] == (name * 16).hex()].set_index("quadrant")
    tensor_only = found.loc["tensor only"]
    assert tensor_only["share_low"] <= truth[1] <= tensor_only["share_high"]
    assert tensor_only["share_high"] - tensor_only["share_low"] < 0.021  # 2 x 1.96 sqrt(p q / 9,600)


def test_intervals_cover_the_truth_95_percent_of_the_time(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    joint: CounterSet,
) -> None:
    """200 fleets, each a class of one release; 95 % of 200 is 190, three standard errors are 9."""
    sums = []
    for seed in range(200):
        counts = count(joint, launches(np.random.default_rng(seed), TRAINING, 2_000))
        sums.append(opened(joint, counts, name=seed))
    table = quadrants(open_release(write_release(make_task(joint), sums)))
    each = table[(table["label"] != "all") & (table["quadrant"] == "tensor only")]
    assert len(each) == 200
    covered = ((each["share_low"] <= TRAINING[1]) & (each["share_high"] >= TRAINING[1])).sum()
    assert 181 <= covered <= 199
