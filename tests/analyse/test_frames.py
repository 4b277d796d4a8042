from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import penrose_ray
from penrose_ray.analyse.frames import class_table, counter_set_of, open_release
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from penrose_ray.histogram import CounterSet


def counts_at(places: Mapping[int, int]) -> NDArray[np.int64]:
    counts = np.zeros(128, np.int64)
    counts[list(places)] = list(places.values())
    return counts


@pytest.fixture(scope="module")
def release(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
    joint: CounterSet,
    kinds: CounterSet,
) -> Path:
    task = make_task(duration, joint, kinds, name="survey", demo=True)
    return write_release(
        task,
        [
            opened(duration, counts_at({0: 10, 64: 80, 127: 10})),
            opened(duration, counts_at({64: 300}), batch=20_001, reports=330),
            opened(joint, counts_at({9 * 8 + 2: 40, 15 * 8 + 7: 60}), name=2),
            opened(kinds, counts_at({0: 75, 3: 25}), name=2),
        ],
    )


def test_public_name_opens_a_release(release: Path) -> None:
    assert penrose_ray.open_release(release).equals(open_release(release))


def test_one_row_a_bin_with_its_edges(release: Path) -> None:
    frame = open_release(release)
    first = frame[(frame["counter_set"] == "duration") & (frame["batch"] == 20_000)]
    assert first["bin"].tolist() == list(range(128))
    assert first["count"].sum() == 100
    assert first["low"].iloc[0] == -np.inf
    assert first["high"].iloc[-1] == np.inf
    # 127 edges, geometric from 100 to 1e9: edge i is 100 * 10**(7 i / 126)
    assert first["low"].iloc[64] == pytest.approx(100 * 10 ** (7 * 63 / 126))
    assert first["high"].iloc[64] == pytest.approx(100 * 10 ** (7 * 64 / 126))
    assert (first["high"].to_numpy()[:-1] == first["low"].to_numpy()[1:]).all()


def test_both_axes_of_a_joint_set(release: Path) -> None:
    frame = open_release(release)
    rows = frame[(frame["counter_set"] == "dram_tensor") & (frame["count"] > 0)]
    assert rows[["counter", "counter_2"]].drop_duplicates().to_numpy().tolist() == [
        ["dram_active", "tensor_active"]
    ]
    inner, outer = rows.iloc[0], rows.iloc[1]
    # 15 edges from 0 to 100 on the first axis, 7 on the second
    assert (inner["low"], inner["high"]) == (pytest.approx(8 * 100 / 14), pytest.approx(9 * 100 / 14))
    assert (inner["low_2"], inner["high_2"]) == (pytest.approx(100 / 6), pytest.approx(200 / 6))
    assert (outer["low"], outer["high"], outer["low_2"], outer["high_2"]) == (100, np.inf, 100, np.inf)


def test_categories_have_names_and_no_edges(release: Path) -> None:
    frame = open_release(release)
    rows = frame[frame["counter_set"] == "kernel_kind"]
    assert rows["category"].tolist()[:2] == ["gemm", "conv"]
    assert len(rows) == 8
    assert rows["low"].isna().all()
    assert rows.set_index("category")["share"].to_dict()["elementwise"] == 0.25


def test_share_carries_its_sampling_interval(release: Path) -> None:
    frame = open_release(release)
    row = frame[(frame["counter_set"] == "duration") & (frame["batch"] == 20_000) & (frame["bin"] == 0)]
    # 10 of 100: the score interval of Newcombe (Stat. Med. 17, 1998, method 3) is 0.0552 to 0.1744
    assert row["share"].item() == 0.1
    assert row["share_low"].item() == pytest.approx(0.0552, abs=5e-5)
    assert row["share_high"].item() == pytest.approx(0.1744, abs=5e-5)


def test_types_and_facts(release: Path) -> None:
    frame = open_release(release)
    assert str(frame["batch_start"].dtype) == "datetime64[s, UTC]"
    assert frame["batch_start"].iloc[0] == pd.Timestamp("2024-10-04", tz="UTC")
    assert frame["batch_end"].iloc[0] == pd.Timestamp("2024-10-05", tz="UTC")
    assert frame["count"].dtype == np.int64
    assert isinstance(frame["class_id"].dtype, pd.CategoricalDtype)
    assert frame["label"].iloc[0] == "01010101"
    assert frame.attrs["demo"] is True
    assert frame.attrs["task_name"] == "survey"
    assert frame.attrs["min_contributors"] == 200
    assert frame[frame["count"] > 0].attrs == frame.attrs


def test_counter_set_comes_back_from_the_frame(release: Path, joint: CounterSet) -> None:
    frame = open_release(release)
    assert counter_set_of(frame, "dram_tensor") == joint
    with pytest.raises(ConfigError, match="duration, dram_tensor, kernel_kind"):
        counter_set_of(frame, "other")


def test_batches_add_up(release: Path) -> None:
    frame = open_release(release, batches="sum")
    rows = frame[frame["counter_set"] == "duration"]
    assert len(rows) == 128
    assert rows["count"].iloc[[0, 64, 127]].tolist() == [10, 380, 10]
    assert rows["samples"].iloc[0] == 400
    assert rows["reports"].iloc[0] == 550
    assert rows["real_reports"].iloc[0] == 495
    assert rows["batch_end"].iloc[0] == pd.Timestamp("2024-10-06", tz="UTC")


def test_class_table_by_hand(release: Path) -> None:
    table = class_table(release)
    assert table[["label", "counter", "samples"]].to_numpy().tolist() == [
        ["01010101", "duration", 400],
        ["02020202", "dram_active", 100],
        ["02020202", "tensor_active", 100],
        ["02020202", "kernel_kind", 100],
    ]
    row = table.iloc[0]
    low, high = 100 * 10 ** (7 * 63 / 126), 100 * 10 ** (7 * 64 / 126)
    assert row["mean"] == pytest.approx((10 * 100 + 380 * np.sqrt(low * high) + 10 * 1e9) / 400)
    assert row["p50"] == pytest.approx(low * (high / low) ** (190 / 380))
    assert (row["unit"], row["source"], row["vendor"]) == ("ns", "opencl", "pocl")
    assert table.iloc[3]["most_common"] == "gemm"
    assert np.isnan(table.iloc[3]["mean"])


def test_classes_with_the_same_first_digits_keep_labels_apart(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    first = opened(duration, counts_at({5: 1}))
    second = opened(duration, counts_at({6: 1}))
    object.__setattr__(second, "class_id", b"\x01" * 15 + b"\x02")
    labels = open_release(write_release(make_task(duration), [first, second]))["label"].unique().tolist()
    assert labels == ["01" * 16, "01" * 15 + "02"]
