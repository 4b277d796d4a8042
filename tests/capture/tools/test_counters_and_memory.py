"""roofline, access_pattern and memory_timeline against figures worked out by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.capture.tools.peaks import peak_of
from penrose_ray.capture.tools.reading import read_traces
from penrose_ray.capture.tools.registry import load
from penrose_ray.capture.tools.session import analyse
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.capture.tools.trace import Trace

    Make = Callable[..., Trace]

SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"


def counter(name: str) -> Counter:
    return Counter(name, "", "ncu", "nvidia")


def test_operations_bytes_and_use_of_a_known_device(trace: Make) -> None:
    """1 us: 100 adds + 200 fused = 500 FLOP, 1,675,000 bytes: half of an H100's 3.35 TB/s."""
    counters = {
        counter(SASS.format("fadd")): [100.0],
        counter(SASS.format("ffma")): [200.0],
        counter(SASS.format("dfma")): [0.0],
        counter("dram__bytes.sum"): [1_675_000.0],
    }
    made = trace([("k", 1000, 2000)], counters=counters, models=("NVIDIA H100 80GB HBM3",))
    (row,) = load(["roofline"])[0].run([made]).frame.to_dict("records")
    assert (row["flop"], row["bytes"], row["bytes_from"]) == (500, 1_675_000, "dram")
    assert row["dram_use"] == pytest.approx(0.5)
    assert row["flop_per_byte"] == pytest.approx(500 / 1_675_000)
    assert row["bound"] == ""


def test_unknown_device_and_unmeasured_kernels_are_said(trace: Make) -> None:
    made = trace([("k", 0, 10), ("k", 10, 20)], counters={counter("dram__bytes.sum"): [64, np.nan]})
    findings = load(["roofline"])[0].run([made])
    assert np.isnan(findings.frame["dram_use"]).all()
    assert len(findings.notes) == 2
    assert peak_of("NVIDIA H100") is None
    assert peak_of("NVIDIA GH200 480GB") is None
    assert peak_of("NVIDIA A100-SXM4-80GB") == pytest.approx((2.039e12, 312e12, 9.7e12))


def test_roofline_of_real_counters(real_traces: Path) -> None:
    """Summed by hand from the file: 2 x ffma + fadd + fmul + tensor operations, 32 bytes a missed sector."""
    path = real_traces / "traces/Wave__h100__gpt2_layer8_embd4096_ffn16384_head64.csv.gz"
    tools = load(["roofline", "kernel_frequency"])
    frame, times = (each.frame for each in analyse(read_traces([path]), tools))
    assert frame["count"].sum() == 564
    assert (frame["bytes_from"] == "l1 misses").all()
    attention = frame[frame["kernel"].str.startswith("fmha_cutlassF")].iloc[0]
    assert attention["tensor_flop"] == pytest.approx(9.663676e9, rel=1e-6)
    assert frame["dram_use"].max() < 1.05
    assert times["timed"].sum() == 564


def test_stride_and_conflicts(trace: Make) -> None:
    sectors = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    requests = sectors.replace("sectors", "requests")
    conflicts = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"
    counters = {
        counter(sectors): [4000.0, 32_000.0],
        counter(requests): [1000.0, 1000.0],
        counter(conflicts): [0.0, 3100.0],
        counter("smsp__sass_inst_executed_op_shared_st.sum"): [100.0, 100.0],
    }
    findings = load(["access_pattern"])[0].run([trace([("good", 0, 9), ("bad", 9, 20)], counters=counters)])
    rows = {(row["kernel"], row["access"]): row for row in findings.frame.to_dict("records")}
    assert rows["good", "global_ld"]["stride_words"] == 1
    assert rows["bad", "global_ld"]["stride_words"] == 8
    assert rows["good", "shared_st"]["padding_words"] == 0
    assert rows["bad", "shared_st"]["conflicts_per_access"] == 31
    assert rows["bad", "shared_st"]["padding_words"] == 1
    assert len(findings.advice) == 2


def test_peak_holders_and_what_is_never_freed(write_kineto: Callable[..., Path]) -> None:
    def memory(ts: int, size: int, address: int, kind: int = 1) -> dict[str, Any]:
        args = {"Bytes": size, "Addr": address, "Device Type": kind, "Device Id": 0 if kind else -1}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": ts} | {
            "args": args
        }

    def operator(name: str, ts: int) -> dict[str, Any]:
        return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": 9}

    events = [
        operator("aten::a", 10),
        memory(11, 100, 1),
        operator("aten::b", 20),
        memory(21, 300, 2),
        memory(22, 50, 9, 0),
        memory(30, -300, 2),
        operator("aten::a", 40),
        memory(41, 150, 2),
        memory(50, -777, 55),
        memory(60, -100, 1),
    ]
    tools = load(["memory_timeline", "tensor_timeline"])
    findings, tensors = analyse(read_traces([write_kineto(events)]), tools)
    rows = {row["operator"]: row for row in findings.frame.to_dict("records")}
    assert findings.figures["peak_bytes"] == 400
    assert rows["aten::b"]["at_peak_bytes"] == 300
    assert rows["aten::b"]["median_life_ns"] == 9000
    assert (rows["aten::a"]["allocations"], rows["aten::a"]["at_peak_bytes"]) == (2, 100)
    assert rows["aten::a"]["kept_bytes"] == 150

    columns = ["operator", "size_bytes", "born_ns", "life_ns", "freed", "at_peak"]
    assert tensors.frame[columns].to_numpy().tolist() == [
        ["aten::b", 300, 10_000, 9_000, True, True],
        ["aten::a", 150, 30_000, 19_000, False, False],
        ["aten::a", 100, 0, 49_000, True, True],
    ]
    (advice,) = tensors.advice
    assert "25% of the peak, for 100% of the recording" in advice.evidence


def test_a_tensor_has_the_inputs_source_and_region_of_its_operator(write_kineto: Callable[..., Path]) -> None:
    place = {"ph": "X", "pid": 1, "tid": 1}
    inputs = {"Input Dims": [[64, 32]], "Input type": ["float"]}
    memory = {"Bytes": 8192, "Addr": 1, "Device Type": 1, "Device Id": 0}
    events = [
        {**place, "cat": "user_annotation", "name": "forward", "ts": 0, "dur": 50},
        {**place, "cat": "python_function", "name": "model.py(7): step", "ts": 1, "dur": 40},
        {**place, "cat": "cpu_op", "name": "aten::relu", "ts": 10, "dur": 9, "args": inputs},
        {
            "ph": "i",
            "cat": "cpu_instant_event",
            "name": "[memory]",
            "pid": 1,
            "tid": 1,
            "ts": 11,
            "args": memory,
        },
    ]
    (findings,) = analyse(read_traces([write_kineto(events)]), load(["tensor_timeline"]))
    (row,) = findings.frame.to_dict("records")
    assert (row["operator"], row["source"], row["region"]) == ("aten::relu", "model.py(7): step", "forward")
    assert row["inputs"] == '[[64,32]]["float"]'
    assert not row["freed"]
