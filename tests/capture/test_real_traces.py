"""Every real trace is read with the kernel count that its collectors counted by other means."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
from collections import Counter as Multiset
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.capture.formats import read_recording
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.capture.summary import summarise

if TYPE_CHECKING:
    from penrose_ray.capture.recording import Recording

_ROOT = os.environ.get("PENROSE_TRACES")
pytestmark = pytest.mark.skipif(not _ROOT, reason="PENROSE_TRACES is not set: real traces are not at hand")

# counts that the manifest leaves open, counted by hand from the raw files
_FURTHER = {
    "TraceLens__mi300__jax_conv_minimal_08__tw003.xplane.pb.gz": (235, 6, 8),
    "TraceLens__test_data_jax_te_fused_attn_categorization__934987a2fc2f.xplane.pb.gz": (150, 19, 1),
    "param__dlrm_kineto.tar.gz": (2104, 76, 8),
    "roc-optiq__sample__rocprof_compute_23ed6f36.db.gz": (10, 7, 1),
    "rocprofiler-sdk__source__docs__kernel_names.csv.gz": (4, 1, 1),
    "DERIVED__alexnet_truncated_json.json.gz": (32, 15, 1),
}
_REFUSED = {
    "roc-optiq__sample__trace_70b_1024_32.rpd.gz": "Git LFS pointer",
    "rocprofiler-compute__workloads__vcopy__MI100__sysinfo.csv.gz": "no trace format",
    "rocprofiler-compute__workloads__vcopy__MI200__sysinfo.csv.gz": "no trace format",
}


def _manifest() -> list[dict[str, str]]:
    if not _ROOT:
        return []
    with (Path(_ROOT) / "traces" / "MANIFEST.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("entry", _manifest(), ids=lambda entry: entry["file"][:60])
def test_file_is_read_with_the_counts_of_its_manifest(entry: dict[str, str], real_traces: Path) -> None:
    found = summarise(real_traces / "traces" / entry["file"])
    if entry["file"] in _REFUSED:
        assert _REFUSED[entry["file"]] in found.error
        assert found.kernels == 0
        return
    assert found.error == ""
    expected = _FURTHER.get(entry["file"]) or tuple(
        int(entry[name]) for name in ("kernels", "distinct_names", "devices")
    )
    assert (found.kernels, found.distinct_names, found.devices) == expected
    assert found.health.seen == found.kernels


def _stream(name: str) -> list[dict[str, str]]:
    assert _ROOT
    with gzip.open(Path(_ROOT) / "streams" / f"{name}.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def _names(name: str) -> set[str]:
    assert _ROOT
    return set(
        json.loads(gzip.decompress((Path(_ROOT) / "streams" / f"{name}.names.json.gz").read_bytes()))["names"]
    )


@pytest.mark.parametrize(
    ("stream", "file"),
    [
        ("hta_df_index_v100", "HolisticTraceAnalysis__df_index_resolver__df_index_resolver.json.gz"),
        ("hta_diff_test_v100", "HolisticTraceAnalysis__trace_diff__test__test.json.gz"),
        ("tl_b200_eager", "TraceLens__b200__eager_trace.json.gz"),
        ("mi350_fsdp_train_rocprofv3", "TraceLens__rocprof__908_results.json.gz"),
        ("nsys_h100_2gpu_1s", "nsys-ai__fixtures__h100_2gpu_1s.sqlite.gz"),
    ],
)
def test_launches_equal_those_another_reader_extracted(stream: str, file: str, real_traces: Path) -> None:
    rows = _stream(stream)
    recording = read_recording(real_traces / "traces" / file)
    batch = recording.batch
    assert len(batch) == len(rows)
    durations = batch.end_ns - batch.start_ns
    # the other reader went through doubles: 256 ns steps at absolute microseconds of 2022
    assert abs(int(durations.sum()) - sum(int(row["dur_ns"]) for row in rows)) <= 300 * len(rows)
    if rows[0]["correlation"]:
        assert np.sort(batch.correlation).tolist() == sorted(int(row["correlation"]) for row in rows)
    theirs = Multiset(int(row["name_id"]) for row in rows)
    ours = Multiset(batch.name_id.tolist())
    assert sorted(ours.values()) == sorted(theirs.values())
    found = {re.sub(r"( \[clone \.kd\]|\.kd)$", "", recording.names[name]) for name in ours}
    assert found == _names(stream)


def test_launch_order_makes_an_application_match_itself(real_traces: Path) -> None:
    """The 8-grams of both halves of a run: all the same in launch order, a third different by start time."""
    path = real_traces / "traces" / "HolisticTraceAnalysis__trace_diff__test__test.json.gz"
    recording = read_recording(path)
    by_start = recording.batch.name_id[np.argsort(recording.batch.start_ns, kind="stable")]
    assert _self_similarity(recording.batch.name_id) > 0.98
    assert _self_similarity(by_start) < 0.75


def _self_similarity(names: np.ndarray) -> float:  # type: ignore[type-arg]
    grams = np.lib.stride_tricks.sliding_window_view(names, 8)
    halves = grams[: len(grams) // 2], grams[len(grams) // 2 :]
    first, second = ({tuple(gram) for gram in half.tolist()} for half in halves)
    return len(first & second) / len(first | second)


def test_operators_are_linked_as_by_a_plain_search(real_traces: Path) -> None:
    path = real_traces / "traces" / "TraceLens__mi300__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    operators = [event for event in events if event.get("cat") == "cpu_op"]
    ids = {event["args"].get("External id") for event in operators}
    calls = {
        event["args"]["correlation"]: event
        for event in events
        if event.get("cat") == "cuda_runtime" and "args" in event
    }
    linked = 0
    for event in events:
        if event.get("cat") != "kernel":
            continue
        call = calls.get(event["args"]["correlation"])
        inside = call is not None and any(
            each["tid"] == call["tid"] and each["ts"] <= call["ts"] <= each["ts"] + each["dur"]
            for each in operators
        )
        linked += inside or event["args"].get("External id", 0) in ids
    assert summarise(path).operators_linked == linked > 1000


def _recording(root: Path, name: str) -> Recording:
    return read_recording(root / "traces" / name)


def test_ncu_times_are_nanoseconds_whatever_the_file_uses(real_traces: Path) -> None:
    medians = []
    for name in (
        "Wave__h100__llama_layer8_embd4096_ffn16384_head32",
        "Wave__4090__gpt2_layer8_embd4096_ffn16384_head64",
    ):
        recording = _recording(real_traces, f"{name}.csv.gz")
        assert recording.counters[0].label == "duration [ns] (ncu)"
        medians.append(float(np.median(recording.batch.counters[:, 0])))
    assert all(2_000 < median < 20_000 for median in medians)


def test_ncu_counters_equal_the_cells_of_the_file(real_traces: Path) -> None:
    name = "Wave__h100__qwen_layer8_embd4096_ffn16384_head32.csv.gz"
    with gzip.open(real_traces / "traces" / name, "rt") as file:
        rows = list(csv.DictReader(file))[1:]
    metric = "l1tex__m_xbar2l1tex_read_sectors_mem_lg_op_ld.sum"
    metric = (
        metric
        if metric in rows[0]
        else next(each for each in rows[0] if each.startswith("l1tex__") and rows[5][each])
    )
    recording = _recording(real_traces, name)
    column = [counter.name for counter in recording.counters].index(metric)
    expected = [float(row[metric].replace(",", "")) for row in rows]
    assert recording.batch.counters[:, column].tolist() == expected


def test_rocprof_counter_is_read_per_dispatch(real_traces: Path) -> None:
    recording = _recording(real_traces, "rocprofiler-sdk__source__docs__counter_collection.csv.gz")
    assert [counter.name for counter in recording.counters] == ["duration", "SQ_WAVES"]
    assert recording.batch.counters[:, 1].tolist() == [16384.0] * 7
    assert np.isnan(recording.batch.counters[:, 0]).all()
    assert recording.batch.grid[0].tolist() == [16384, 1, 1]


def test_two_devices_stay_apart(real_traces: Path) -> None:
    source = ReplaySource(real_traces / "traces" / "nsys-ai__fixtures__h100_2gpu_1s.sqlite.gz")
    source.open()
    batch = source.poll(1 << 20)
    assert np.bincount(batch.device).tolist() == [1721, 1721]
    assert len(np.unique(batch.process)) == 2
