"""Kernels, operators, gaps, communication: hand-made truths, then what HTA says of real files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penrose_ray.capture.tools.reading import read_traces
from penrose_ray.capture.tools.registry import load
from penrose_ray.capture.tools.session import analyse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.capture.tools.base import Findings
    from penrose_ray.capture.tools.trace import Trace

    Make = Callable[..., Trace]

HTA = "traces/HolisticTraceAnalysis__"
DF_INDEX = HTA + "df_index_resolver__df_index_resolver.json.gz"
NCCL = HTA + "nccl_parser_config__nccl_data.json.gz"


@pytest.fixture(scope="module")
def df_index(real_traces: Path) -> dict[str, Findings]:
    tools = load(["kernel_frequency", "operator_map", "timeline_gaps", "comm_overlap"])
    return {each.tool: each for each in analyse(read_traces([real_traces / DF_INDEX]), tools)}


def test_frequency_counts_what_it_cannot_time(trace: Make) -> None:
    (tool,) = load(["kernel_frequency"])
    frame = tool.run([trace([("a", 10, 40), ("b", 50, 60), ("a", 100, 200), ("a", 0, 0)])]).frame
    first = frame.iloc[0]
    assert (first["kernel"], first["count"], first["timed"], first["total_ns"]) == ("a", 3, 2, 130)
    assert (first["min_ns"], first["max_ns"], first["mean_ns"]) == (30, 100, 65)
    assert first["share"] == pytest.approx(130 / 140)


def test_overlap_of_communication_in_nanoseconds(trace: Make) -> None:
    (tool,) = load(["comm_overlap"])
    kernels = [("ncclDevKernel_AllReduce", 100, 300), ("gemm", 50, 150), ("gemm", 140, 160), ("x", 290, 400)]
    findings = tool.run([trace(kernels, queue=[1, 0, 2, 0])])
    row = findings.frame.iloc[0]
    assert (row["communication_ns"], row["overlap_ns"], row["exposed_ns"]) == (200, 70, 130)
    assert row["overlap"] == 0.35
    assert findings.advice[0].confidence == 0.6


def test_gaps_by_cause(
    write_kineto: Callable[..., Path], kernel_event: Callable[..., dict[str, Any]]
) -> None:
    """Kernels end at 15 us, 25 us, 35 us, 40.02 us; the launches are at 1, 16 (late), 21, 22 and 23 us."""
    kernels = [kernel_event(number) for number in (1, 2, 3)]
    kernels += [kernel_event(4, ts=35.02), kernel_event(5, ts=50.0)]
    calls = [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9, "tid": 9}
        | {"ts": ts, "dur": 1, "args": {"correlation": number}}
        for number, ts in ((1, 1), (2, 16), (3, 21), (4, 22))
    ]
    (findings,) = analyse(read_traces([write_kineto([*calls, *kernels])]), load(["timeline_gaps"]))
    idle = dict(zip(findings.frame["cause"], findings.frame["idle_ns"], strict=True))
    assert idle == {"host_wait": 5000, "other": 5000, "kernel_wait": 20, "unknown": 9980}


def test_operator_by_id_then_by_call_with_source_region_and_forward(
    write_kineto: Callable[..., Path],
) -> None:
    def event(cat: str, name: str, ts: float, dur: float, tid: int = 1, **args: int) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}

    def kernel(number: int, **args: int) -> dict[str, Any]:
        return event("kernel", "k", 100 + number, 1, 7, device=0, stream=7, correlation=number, **args)

    number = {"Sequence number": 5}
    events = [
        event("user_annotation", "step", 0, 50),
        event("python_function", "model.py(12): forward", 1, 40),
        event("cpu_op", "aten::zero_", 2, 1, **number),
        event("cpu_op", "aten::linear", 5, 20, **number),
        event("cpu_op", "aten::addmm", 8, 10, **number, **{"External id": 77}),
        event("cuda_runtime", "cudaLaunchKernel", 10, 1, correlation=1),
        event("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 60, 20, 2, **number),
        event("cuda_runtime", "cudaLaunchKernel", 65, 1, 2, correlation=2),
        kernel(1, **{"External id": 77}),
        kernel(2, **{"External id": 2}),
        kernel(3),
    ]
    (findings,) = analyse(read_traces([write_kineto(events)]), load(["operator_map"]))
    rows = {row["linked_by"]: row for row in findings.frame.to_dict("records")}
    forward, backward = rows["external id"], rows["enclosing operator"]
    assert (forward["operator"], forward["top_operator"]) == ("aten::addmm", "aten::linear")
    assert (forward["source"], forward["region"]) == ("model.py(12): forward", "step")
    assert backward["backward"]
    assert backward["forward_of"] == "aten::addmm"
    assert rows[""]["count"] == 1
    assert findings.figures["linked_share"] == pytest.approx(2 / 3)


def test_same_figures_as_hta_where_the_file_counts_whole_microseconds(df_index: dict[str, Findings]) -> None:
    """HTA 0.5.0, include_last_profiler_step: idle 732352 us, compute 620516, host_wait 876151 and 1145111."""
    gaps, overlap = df_index["timeline_gaps"], df_index["comm_overlap"].frame.iloc[0]
    assert gaps.figures["device_idle_ns"] == 732_352_000
    assert gaps.figures["span_ns"] == 1_732_965_000
    host = gaps.frame[gaps.frame["cause"] == "host_wait"]["idle_ns"].tolist()
    assert host == [876_151_000, 1_145_111_000]
    by_queue = gaps.frame.groupby("queue")["idle_ns"].sum().tolist()
    assert by_queue == [(876_151 + 21_032 + 192_512) * 1000, (1_145_111 + 9_343 + 7_320) * 1000]
    assert (overlap["compute_ns"], overlap["communication_ns"]) == (620_516_000, 357_343_000)
    assert overlap["overlap"] == 0


def test_same_kernels_as_hta(df_index: dict[str, Findings]) -> None:
    frame = df_index["kernel_frequency"].frame
    assert len(frame) == 51
    assert frame["count"].sum() == 22_290
    assert frame["total_ns"].sum() == 1_000_613_000
    first = frame.iloc[0]
    assert first["kernel"] == "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
    assert first["std_ns"] == pytest.approx(425_593.740, abs=0.001)
    assert df_index["operator_map"].figures["linked_share"] == 1


def test_nanoseconds_are_not_rounded_as_hta_does(real_traces: Path) -> None:
    """HTA cuts to whole microseconds: 15.14 % overlap and 161,435 us of device time for this file."""
    found = analyse(read_traces([real_traces / NCCL]), load(["comm_overlap", "kernel_frequency"]))
    assert found[0].figures["overlap"] == pytest.approx(0.1514, abs=0.006)
    assert found[1].figures["device_time_ns"] == pytest.approx(161_435_000, rel=0.025)


def test_findings_are_json_that_any_reader_takes(df_index: dict[str, Findings]) -> None:
    for findings in df_index.values():
        json.loads(findings.frame.to_json(orient="records"))
