"""Every question of the documentation on launches that real profilers measured: a table, then a figure."""

from __future__ import annotations

import os
from collections import Counter as Tally
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from penrose_ray.analyse import (
    charts,
    drift,
    energy,
    figures,
    fleet,
    idle,
    joint,
    kinds,
    over_time,
    pooling,
    suspects,
    utilisation,
    what_if,
)
from penrose_ray.analyse.frames import open_release
from penrose_ray.capture.formats import read_recording
from penrose_ray.histogram import Axis, Counter, CounterSet, count
from penrose_ray.kernel_names import KINDS, kind_number, kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penrose_ray.capture.recording import Recording

ROOT = os.environ.get("PENROSE_TRACES")
pytestmark = pytest.mark.skipif(not ROOT, reason="PENROSE_TRACES names no folder of real traces")
SOURCES = {
    "wave": "Wave__h100__gpt2_layer8*.csv.gz",
    "rocprofiler-compute": "rocprofiler-compute__workloads__vcopy__MI200__pmc_perf.csv.gz",
    "roc-optiq": "roc-optiq__sample__rocprof*.db.gz",
}
HOUR = 480_000
BYTES = {"wave": (("global_op", "lookup_miss.sum"), 32), "rocprofiler-compute": (("TCC_EA_WRREQ[",), 64)}
"""Counters whose sum, times so many bytes, is memory traffic."""


class Measured:
    """One recording as a release of two hourly batches, every other launch in each."""

    def __init__(self, source: str, make_task: Any, opened: Any, write_release: Any) -> None:  # noqa: ANN401
        (path,) = sorted((Path(str(ROOT)) / "traces").glob(SOURCES[source]))[:1]
        self.source, self.recording = source, read_recording(path)
        vendor = self.recording.counters[0].vendor
        self.durations = self.recording.batch.counters[:, 0]
        self.names = [self.recording.names[each] for each in self.recording.batch.name_id]
        timed = kinds.kind_duration_set(source, vendor, low_ns=1e2, high_ns=1e9)
        sets = {timed: np.stack([[kind_number(each) for each in self.names], self.durations], axis=1)}
        duration = CounterSet(
            "duration", (Counter("duration", "ns", source, vendor),), axes=(Axis("log", 1e2, 1e9),)
        )
        sets[duration] = self.durations[:, None]
        if source in BYTES:
            sets[_use(source, vendor)] = self._rates()
        sums = [
            opened(one, count(one, values[half::2]), batch=HOUR + half, gpu_model=self.recording.devices[0])
            for one, values in sets.items()
            for half in (0, 1)
        ]
        path = write_release(make_task(*sets, batch_s=3600), sums)
        self.hours, self.frame = open_release(path), open_release(path, batches="sum")

    def _rates(self) -> NDArray[np.float64]:
        parts, size = BYTES[self.source]
        traffic = _sum_of(self.recording, parts) * size
        tensor = _sum_of(self.recording, ("path_tensor", ".sum"))
        return np.stack([traffic, tensor], axis=1) / self.durations[:, None]


def _use(source: str, vendor: str) -> CounterSet:
    names = (("dram_rate", "B/ns"), ("tensor_rate", "op/ns"))
    counters = tuple(Counter(name, unit, source, vendor) for name, unit in names)
    return CounterSet("use", counters, axes=(Axis("log", 1.0, 8192.0, 16), Axis("log", 1.0, 65536.0, 8)))


def _sum_of(recording: Recording, parts: tuple[str, ...]) -> NDArray[np.float64]:
    wanted = [i for i, each in enumerate(recording.counters) if all(part in each.name for part in parts)]
    return np.asarray(recording.batch.counters[:, wanted].sum(axis=1))


@pytest.fixture(scope="module", params=SOURCES)
def measured(
    request: pytest.FixtureRequest,
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
) -> Measured:
    return Measured(request.param, make_task, opened, write_release)


def drawn(figure: Figure, *texts: str) -> None:
    axes = figure.axes[0]
    seen = [axes.get_title(loc="left"), *(each.get_text() for each in (*axes.texts, *axes.get_yticklabels()))]
    assert isinstance(figure, Figure)
    for text in texts:
        assert any(text in each for each in seen), (text, seen)


def test_fleet_time_by_kind_of_kernel(measured: Measured) -> None:
    table = kinds.by_kind(measured.frame).set_index("kind")
    assert table["launches"].to_dict() == {each: Tally(map(kind_of, measured.names))[each] for each in KINDS}
    kind = np.array([kind_of(each) for each in measured.names])
    for each in KINDS:
        exact = measured.durations[kind == each].sum() / measured.durations.sum()
        row = table.loc[each]
        assert row["time_share"] == pytest.approx(exact, abs=0.12), each  # 16 bins over 7 decades
    title = "Time by kind"
    drawn(
        charts.interval_bars(table.reset_index(), value="time_share", rows="kind", title=title), title, "gemm"
    )
    several = kinds.collectives(measured.frame)
    assert not several["several_gpus"].any()
    assert (several["most_speedup"] == 1).all()
    drawn(charts.interval_bars(several, value="collective_share", title="Between GPUs"), "Between GPUs")


def test_memory_and_tensor_cores(measured: Measured) -> None:
    if measured.source not in BYTES:
        assert joint.joint_sets(measured.frame) == []
        drawn(figures.joint_use(measured.frame), "no joint counter set")
        return
    table = joint.quadrants(measured.frame, dram_active=100.0, tensor_active=1_000.0)
    edges = table["dram_active"].iloc[0], table["tensor_active"].iloc[0]
    rates = measured._rates()
    dram, tensor = rates[:, 0] >= edges[0], rates[:, 1] >= edges[1]
    counted = table[table["label"] == "all"].set_index("quadrant")["count"]
    assert counted["DRAM only"] == (dram & ~tensor).sum()
    assert counted["both"] == (dram & tensor).sum()
    drawn(charts.quadrant_bars(table), "who works when")
    drawn(figures.joint_use(measured.frame), "tensor only", "DRAM only", "both", "idle")
    faster = what_if.what_if(measured.frame, dram=2.0, dram_active=100.0, tensor_active=1_000.0)
    assert (faster["speedup_low"] >= 1).all()
    assert (faster["speedup_high"] <= 2).all()
    drawn(
        charts.interval_bars(
            faster, value="speedup_high", low="speedup_low", high="speedup_high", title="Twice the DRAM",
            form=lambda each: f"{each:.2f} x",
        ),
        "Twice the DRAM", " x",
    )  # fmt: skip
    useful = utilisation.useful_throughput(
        measured.frame, busy="tensor_rate", busy_from=1_000.0, bandwidth="dram_rate", bandwidth_below=100.0
    )
    assert useful["basis"].tolist() == ["joint"]
    assert useful["share"].item() == pytest.approx((tensor & ~dram).mean())
    short = (measured.durations < 20_000).mean()
    assert useful["short_share"].item() == pytest.approx(short, abs=0.05)
    drawn(charts.interval_bars(useful, value="share", title="Busy, bandwidth unused"), "Busy")


def test_the_rest_runs_on_it_too(measured: Measured) -> None:
    whole = measured.durations.sum() / 1e9
    metrics = idle.busy_by_batch(measured.hours, gpus=1, sampling_interval=1)
    assert (metrics["busy"] * 3600).sum() == pytest.approx(whole, rel=0.07)
    drawn(charts.idle_map(idle.idle_by_hour(metrics)), "Idle share by hour")
    assert fleet.fleet_shares(measured.frame)["time_share"].tolist() == [1.0]
    drawn(figures.fleet_share(measured.frame), "Launches and GPU time")
    model = measured.recording.devices[0]
    cost = energy.cost_of_work(
        measured.frame, site=energy.Site(pue=1.2, price_per_kwh=0.2), watts_per_tflops={model: 0.7}
    )
    assert cost["joules_per_tflop"].tolist() == pytest.approx([0.84])
    drawn(
        charts.interval_bars(cost, value="joules_per_tflop", rows="gpu_model", title="Energy", form=str),
        model,
    )
    moves = over_time.trend(measured.hours, "duration")
    assert moves["samples"].sum() == len(measured.durations)
    drawn(charts.trend_lines(moves, title="Median duration", unit="ns"), "Median duration")
    halves = [measured.hours[measured.hours["batch"] == HOUR + half] for half in (0, 1)]
    changed = drift.drift(*halves)
    assert len(changed) == measured.frame["counter_set"].nunique()
    drawn(charts.interval_bars(changed, value="distance", rows="counter_set", title="Drift"), "Drift")
    odd = suspects.suspects(measured.frame[measured.frame["counter_set"] == "duration"])
    drawn(
        charts.interval_bars(odd, value="share", title="Suspects"), "nothing to show" if odd.empty else "Sus"
    )
    pooled = pooling.pool(measured.hours, ["batches", "classes", "models"])
    assert pooled["count"].sum() == measured.frame["count"].sum()


@pytest.mark.parametrize(
    "draw",
    [
        lambda empty: charts.interval_bars(empty, value="share", title="T"),
        charts.quadrant_bars,
        lambda empty: charts.trend_lines(empty, title="T", unit="ns"),
        lambda empty: charts.idle_map(empty.reindex(index=range(7), columns=range(24)).astype(float)),
    ],
)
def test_a_chart_of_nothing_says_so(draw: Callable[[pd.DataFrame], Figure]) -> None:
    figure = draw(
        pd.DataFrame({name: [] for name in ("label", "share", "quadrant", "batch_start", "samples")})
    )
    said = [each.get_text() for each in figure.axes[0].texts]
    assert said in (["There is nothing to show."], ["No hour was measured."])
