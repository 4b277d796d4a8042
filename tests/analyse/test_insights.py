"""Insights against truths that are counted by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from penrose_ray.analyse import drift, energy, idle, kinds, suspects, utilisation, what_if
from penrose_ray.analyse.frames import open_release
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import Axis, Counter, CounterSet, count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PERCENT = Axis("linear", 0.0, 100.0)


@pytest.fixture(scope="session")
def frame_of(
    make_task: Callable[..., Any], opened: Callable[..., Any], write_release: Callable[..., Path]
) -> Callable[..., pd.DataFrame]:
    """A frame from (counter set, values, keywords of `opened`) triples, through the writer and the file."""

    def make(*parts: tuple[CounterSet, Any, dict[str, Any]], **task: Any) -> pd.DataFrame:  # noqa: ANN401 - fields of a task
        sets = {part[0].name: part[0] for part in parts}
        sums = [
            opened(one, count(one, np.asarray(values, float).reshape(-1, len(one.counters))), **options)
            for one, values, options in parts
        ]
        return open_release(write_release(make_task(*sets.values(), **task), sums))

    return make


def one_counter(name: str, unit: str, axis: Axis, source: str = "cupti") -> CounterSet:
    return CounterSet(f"{name}_{source}", (Counter(name, unit, source, "nvidia"),), axes=(axis,))


def test_launches_by_kind(frame_of: Callable[..., pd.DataFrame], kinds: CounterSet) -> None:
    from penrose_ray.analyse.kinds import by_kind  # noqa: PLC0415 - the fixture has the module's name

    table = by_kind(frame_of((kinds, [0] * 60 + [3] * 30 + [6] * 10, {}))).set_index("kind")
    assert table["launch_share"].to_dict() == {
        "gemm": 0.6, "conv": 0.0, "attention": 0.0, "elementwise": 0.3, "reduction": 0.0, "copy": 0.0,
        "collective": 0.1, "other": 0.0,
    }  # fmt: skip
    assert table["launch_share_low"]["gemm"] < 0.6 < table["launch_share_high"]["gemm"]
    assert table["time_share"].isna().all()


def test_time_by_kind_weighs_with_durations(frame_of: Callable[..., pd.DataFrame]) -> None:
    timed = kinds.kind_duration_set("cupti", "nvidia", low_ns=1e3, high_ns=1e9)
    edges = timed.axes[1].edges()
    short, long = np.sqrt(edges[2] * edges[3]), np.sqrt(edges[4] * edges[5])
    values = [(0, long)] * 20 + [(6, short)] * 50 + [(7, short)] * 30
    frame = frame_of((timed, values, {}))
    table = kinds.by_kind(frame).set_index("kind")
    assert table["launches"].to_dict()["collective"] == 50
    total = 20 * long + 80 * short
    assert table["time_share"]["gemm"] == pytest.approx(20 * long / total)
    assert table["time_share"]["collective"] == pytest.approx(50 * short / total)
    several = kinds.collectives(frame).iloc[0]
    assert several["several_gpus"]
    assert several["basis"] == "time"
    assert several["most_speedup"] == pytest.approx(1 / (1 - 50 * short / total))


def test_interval_of_a_time_share_covers_the_truth(frame_of: Callable[..., pd.DataFrame]) -> None:
    timed = kinds.kind_duration_set("cupti", "nvidia", low_ns=1e3, high_ns=1e9)
    centres = timed.axes[1].centres()
    random = np.random.default_rng(4)
    parts = []
    for name in range(200):
        kind, long = random.choice([0, 3], 1_000, p=[0.3, 0.7]), random.random(1_000) < 0.5
        slow = np.where(kind == 0, np.where(long, 8, 7), np.where(long, 5, 4))
        parts.append((timed, np.stack([kind, centres[slow]], axis=1), {"name": name}))
    table = kinds.by_kind(frame_of(*parts))
    gemm = table[table["kind"] == "gemm"]
    weight = 0.3 * (centres[7] + centres[8]), 0.7 * (centres[4] + centres[5])
    truth = weight[0] / sum(weight)
    covered = ((gemm["time_share_low"] <= truth) & (truth <= gemm["time_share_high"])).sum()
    assert 181 <= covered <= 199  # 95 % of 200, three standard errors


def test_frame_without_kinds_is_refused(frame_of: Callable[..., pd.DataFrame], duration: CounterSet) -> None:
    with pytest.raises(ConfigError, match="no counter set of kernel kinds"):
        kinds.by_kind(frame_of((duration, [1e5], {})))


def test_busy_without_bandwidth_is_counted_in_a_joint_set(
    frame_of: Callable[..., pd.DataFrame], duration: CounterSet
) -> None:
    both = CounterSet(
        "use",
        (Counter("sm_active", "%", "dcgm", "nvidia"), Counter("dram_active", "%", "dcgm", "nvidia")),
        axes=(Axis("linear", 0, 100, 8), Axis("linear", 0, 100, 16)),
    )
    values = [(95, 20)] * 70 + [(95, 95)] * 20 + [(10, 5)] * 10
    frame = frame_of((both, values, {}), (duration, [5e3] * 90 + [1e6] * 10, {}))
    row = utilisation.useful_throughput(frame).iloc[0]
    assert (row["basis"], row["share"], row["short_share"]) == ("joint", 0.7, 0.9)
    assert row["advice"] == "fuse short kernels"


def test_busy_without_bandwidth_is_bounded_from_two_sets(frame_of: Callable[..., pd.DataFrame]) -> None:
    busy, used = one_counter("sm_active", "%", PERCENT), one_counter("dram_active", "%", PERCENT)
    frame = frame_of((busy, [95] * 90 + [10] * 10, {}), (used, [20] * 80 + [95] * 20, {}))
    row = utilisation.useful_throughput(frame).iloc[0]
    # 90 % busy, 80 % without bandwidth: together at least 70 % and at most 80 %
    assert row["basis"] == "bounds"
    assert row["share_low"] == pytest.approx(0.7)
    assert row["share_high"] == pytest.approx(0.8)
    assert np.isnan(row["share"])
    assert row["advice"].startswith("busy without bandwidth")
    assert utilisation.mean_of(frame, "dram_active")["mean"].item() == pytest.approx(35, abs=0.8)


def test_idle_hours_come_back(frame_of: Callable[..., pd.DataFrame], duration: CounterSet) -> None:
    """100 GPUs, one launch in 10,000 sampled, 1 ms each: 36 samples are one busy GPU hour."""
    length = np.sqrt(np.prod(duration.axes[0].edges()[63:65]))
    gpu_hour = 3600 / (length / 1e9) / 10_000
    parts = []
    for hour in range(48):
        busy = 0.38 if 2 <= hour % 24 < 5 else 0.9
        samples = round(100 * busy * gpu_hour)
        parts.append((duration, [length] * samples, {"batch": 480_000 + hour}))
    metrics = idle.busy_by_batch(frame_of(*parts, batch_s=3600), gpus=100, sampling_interval=10_000)
    assert len(metrics) == 48
    assert idle.idle_between(metrics, 2, 5) == pytest.approx(0.62, abs=1e-3)
    table = idle.idle_by_hour(metrics)
    first = metrics["time"].iloc[0]
    assert table.shape == (7, 24)
    assert table.iloc[first.day_of_week, 3] == pytest.approx(0.62, abs=1e-3)
    assert table.iloc[first.day_of_week, 12] == pytest.approx(0.10, abs=1e-3)
    assert table.isna().to_numpy().sum() == 5 * 24


def test_idle_needs_hours_and_shares(frame_of: Callable[..., pd.DataFrame], duration: CounterSet) -> None:
    with pytest.raises(ConfigError, match="need batches of 3600 s"):
        idle.busy_by_batch(frame_of((duration, [1e5], {})), gpus=1, sampling_interval=1)
    with pytest.raises(ConfigError, match="share of 0 to 1"):
        idle.idle_by_hour(pd.DataFrame({"time": ["2026-01-01"], "busy": [85]}))


def test_efficiency_factors_are_the_published_ones() -> None:
    rounded = {name: round(value, 2) for name, value in energy.efficiency_factors().items()}
    assert rounded == {"V100": 1.00, "A100": 1.56, "L40S": 1.10}


def test_cost_of_useful_work(frame_of: Callable[..., pd.DataFrame], duration: CounterSet) -> None:
    frame = frame_of(
        (duration, [1e5] * 75, {"name": 1, "gpu_model": "NVIDIA A100-SXM4-80GB"}),
        (duration, [1e5] * 25, {"name": 2, "gpu_model": "Tesla V100-PCIE-32GB"}),
        (duration, [1e5] * 100, {"name": 3, "gpu_model": "Unknown"}),
    )
    site = energy.Site(pue=1.5, temperature_c=65, per_degree=0.005, price_per_kwh=0.36)
    table = energy.cost_of_work(frame, useful={"NVIDIA A100-SXM4-80GB": 0.5}, site=site)
    table = table.set_index("generation")
    assert table["time_share"].to_dict() == pytest.approx({"A100": 0.375, "V100": 0.125, "": 0.5})
    # W per TFLOPS is J per TFLOP; PUE 1.5, 40 degrees above at 0.5 % each
    assert table["joules_per_tflop"]["V100"] == pytest.approx(2.00 * 1.5 * 1.2)
    assert table["joules_per_tflop"]["A100"] == pytest.approx(1.28 * 1.5 * 1.2 / 0.5)
    # a million TFLOP at 3.6 J each take one kWh
    assert table["cost_per_eflop"]["V100"] == pytest.approx(0.36)
    assert np.isnan(table["joules_per_tflop"][""])
    with pytest.raises(ConfigError, match="below 1"):
        energy.Site(pue=0.9).factor()


def test_impossible_values_are_named(frame_of: Callable[..., pd.DataFrame]) -> None:
    wide = one_counter("sm_active", "%", Axis("linear", 0.0, 252.0))
    good, power = one_counter("dram_active", "%", PERCENT), one_counter("power", "W", PERCENT)
    frame = frame_of(
        (wide, [50] * 90 + [200] * 10, {}), (good, [100] * 50 + [0] * 50, {}), (power, [1e9] * 10, {})
    )
    found = suspects.suspects(frame).set_index("counter")
    assert found["reason"].to_dict() == {"sm_active": "above the possible", "power": "one value only"}
    assert found["share"]["sm_active"] == 0.1
    limited = suspects.suspects(frame, limits={"dram_active": (0.0, 60.0)})
    assert limited.set_index("counter")["share"]["dram_active"] == 0.5


def test_sources_that_contradict_each_other_are_named_and_never_added(
    frame_of: Callable[..., pd.DataFrame],
) -> None:
    axis = Axis("log", 1e2, 1e9)
    one, other = one_counter("duration", "ns", axis, "cupti"), one_counter("duration", "ns", axis, "driver")
    frame = frame_of((one, [1e4] * 10, {}), (other, [5e4] * 10, {}))
    row = suspects.suspects(frame).iloc[0]
    assert row["reason"] == "sources disagree"
    assert "from driver" in row["detail"]
    assert suspects.suspects(frame_of((one, [1e4] * 10, {}), (other, [1.2e4] * 10, {}))).empty


def test_drift_between_two_releases(frame_of: Callable[..., pd.DataFrame], duration: CounterSet) -> None:
    random = np.random.default_rng(9)
    steady = [random.lognormal(11, 0.5, 20_000) for _ in range(2)]
    before = frame_of((duration, steady[0], {"name": 1}), (duration, steady[0], {"name": 2}))
    after = frame_of((duration, steady[1], {"name": 1}), (duration, steady[1] * 1.3, {"name": 2}))
    table = drift.drift(before, after).set_index("label")
    assert table["drifted"].to_dict() == {"01010101": False, "02020202": True}
    assert table["mean_ratio"]["02020202"] == pytest.approx(1.3, abs=0.02)
    assert table["distance"]["01010101"] == pytest.approx(table["expected_distance"]["01010101"], rel=0.3)


def test_drift_names_classes_that_came_and_went(
    frame_of: Callable[..., pd.DataFrame], duration: CounterSet
) -> None:
    one, two = (duration, [1e5] * 10, {"name": 1}), (duration, [1e5] * 10, {"name": 2})
    table = drift.drift(frame_of(one), frame_of(two)).set_index("label")
    assert table["seen"].to_dict() == {"01010101": "before", "02020202": "after"}
    assert not table["drifted"].any()
    with pytest.raises(ConfigError, match="different tasks"):
        drift.drift(frame_of(one), frame_of(two, name="another"))


def test_chi_square_is_a_test_of_its_level() -> None:
    random = np.random.default_rng(2)
    share = random.dirichlet(np.ones(60))
    p_values = [
        drift.chi_square_p(random.multinomial(20_000, share), random.multinomial(5_000, share))
        for _ in range(2_000)
    ]
    # the standard error of a rate of 0.05 over 2,000 draws is 0.0049
    assert np.mean(np.array(p_values) < 0.05) == pytest.approx(0.05, abs=0.015)


def test_what_if_dram_were_twice_as_fast(frame_of: Callable[..., pd.DataFrame], joint: CounterSet) -> None:
    values = [(90, 10)] * 40_000 + [(90, 90)] * 20_000 + [(10, 90)] * 40_000
    row = what_if.what_if(frame_of((joint, values, {}))).iloc[0]
    assert (row["dram_only"], row["both"]) == (0.4, 0.2)
    # Amdahl by hand: 0.6 stays and 0.4 halves; 0.4 stays and 0.6 halves
    assert row["speedup_low"] == pytest.approx(1.25, abs=0.01)
    assert row["speedup_high"] == pytest.approx(1 / 0.7, abs=0.01)
    with pytest.raises(ConfigError, match="slow it down"):
        what_if.what_if(frame_of((joint, values, {})), dram=0.5)
