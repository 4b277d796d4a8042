"""Counters that profilers measured on real GPUs, through writer and insight, against numpy on the rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.analyse.fleet import fleet_shares
from penrose_ray.analyse.frames import open_release
from penrose_ray.analyse.joint import quadrants
from penrose_ray.analyse.suspects import suspects
from penrose_ray.analyse.utilisation import mean_of
from penrose_ray.capture.formats import read_recording
from penrose_ray.histogram import Axis, Counter, CounterSet, count

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandas as pd
    from numpy.typing import NDArray

    from penrose_ray.capture.recording import Recording

ROOT = os.environ.get("PENROSE_TRACES")
pytestmark = pytest.mark.skipif(not ROOT, reason="PENROSE_TRACES names no folder of real traces")
SECTOR_BYTES = 32
DURATION = CounterSet(
    "duration", (Counter("duration", "ns", "ncu", "nvidia"),), axes=(Axis("log", 1e2, 1e8),)
)
USE = CounterSet(
    "use",
    (Counter("dram_rate", "B/ns", "ncu", "nvidia"), Counter("tensor_rate", "op/ns", "ncu", "nvidia")),
    axes=(Axis("log", 1.0, 8192.0, 16), Axis("log", 1.0, 65536.0, 8)),
)


def files(pattern: str) -> list[Path]:
    return sorted((Path(str(ROOT)) / "traces").glob(pattern))


def column(recording: Recording, *parts: str) -> NDArray[np.float64]:
    """Sum of the counters whose name holds all parts, per launch."""
    wanted = [i for i, each in enumerate(recording.counters) if all(part in each.name for part in parts)]
    return np.asarray(recording.batch.counters[:, wanted].sum(axis=1))


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[str, NDArray[np.float64]]]:
    """File -> GPU model and (duration, bytes a ns that miss L1, tensor operations a ns) of each launch."""
    found = {}
    for path in files("Wave__*.csv.gz"):
        recording = read_recording(path)
        duration = recording.batch.counters[:, 0]
        missed = column(recording, "global_op", "lookup_miss.sum") * SECTOR_BYTES
        tensor = column(recording, "path_tensor", ".sum")
        rows = np.stack([duration, missed / duration, tensor / duration], axis=1)
        found[path.name] = (recording.devices[0], rows[np.isfinite(rows).all(axis=1)])
    assert len(found) >= 6
    return found


@pytest.fixture(scope="module")
def frame(
    measured: dict[str, tuple[str, NDArray[np.float64]]],
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
) -> pd.DataFrame:
    sums = []
    for name, (model, rows) in enumerate(measured.values()):
        sums.append(opened(DURATION, count(DURATION, rows[:, :1]), name=name, gpu_model=model))
        sums.append(opened(USE, count(USE, rows[:, 1:]), name=name, gpu_model=model))
    return open_release(write_release(make_task(DURATION, USE), sums))


def test_quadrants_are_those_of_the_launches(
    frame: pd.DataFrame, measured: dict[str, tuple[str, NDArray[np.float64]]]
) -> None:
    table = quadrants(frame, dram_active=100.0, tensor_active=1_000.0)
    dram_edge, tensor_edge = table["dram_active"].iloc[0], table["tensor_active"].iloc[0]
    rows = np.concatenate([rows for _, rows in measured.values()])
    dram, tensor = rows[:, 1] >= dram_edge, rows[:, 2] >= tensor_edge
    everything = table[table["label"] == "all"].set_index("quadrant")["count"].to_dict()
    assert everything == {
        "both": (dram & tensor).sum(),
        "tensor only": (~dram & tensor).sum(),
        "DRAM only": (dram & ~tensor).sum(),
        "idle": (~dram & ~tensor).sum(),
    }
    assert min(everything["both"] + everything["tensor only"], everything["DRAM only"]) > 0


def test_mean_durations_are_right_to_a_bin(
    frame: pd.DataFrame, measured: dict[str, tuple[str, NDArray[np.float64]]]
) -> None:
    step = 10 ** (6 / 126)  # 126 bins over 6 decades
    found = mean_of(frame, "duration")["mean"].to_numpy()
    exact = np.array([rows[:, 0].mean() for _, rows in measured.values()])
    assert (np.abs(np.log(found / exact)) < np.log(step) / 2).all()


def test_time_shares_are_those_of_the_launches(
    frame: pd.DataFrame, measured: dict[str, tuple[str, NDArray[np.float64]]]
) -> None:
    shares = fleet_shares(frame).set_index("label")["time_share"]
    total = np.array([rows[:, 0].sum() for _, rows in measured.values()])
    for name, exact in enumerate(total / total.sum()):
        assert shares[f"{name:02x}" * 4] == pytest.approx(exact, rel=0.06)


def test_real_durations_are_not_suspected(frame: pd.DataFrame) -> None:
    assert suspects(frame[frame["counter_set"] == "duration"]).empty


@pytest.mark.parametrize(
    "pattern",
    ["rocprofiler-compute__workloads__vcopy__MI*__pmc_perf.csv.gz", "roc-optiq__sample__rocprof*.db.gz"],
)
def test_durations_of_amd_recordings(
    pattern: str,
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
) -> None:
    for path in files(pattern):
        recording = read_recording(path)
        values = recording.batch.counters[:, 0]
        counter = recording.counters[0]
        assert (counter.name, counter.unit, counter.vendor) == ("duration", "ns", "amd")
        one = CounterSet("duration", (counter,), axes=(Axis("log", 1e2, 1e9),))
        release = write_release(make_task(one), [opened(one, count(one, values[:, None]))])
        row = mean_of(open_release(release), "duration").iloc[0]
        assert row["samples"] == np.isfinite(values).sum()
        assert row["mean"] == pytest.approx(np.nanmean(values), rel=0.07)
