"""stream_overlap, fusion_candidates, gemm_advice and atomics on traces whose right answer is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.capture.tools.reading import read_traces
from penrose_ray.capture.tools.registry import load
from penrose_ray.capture.tools.session import analyse
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.capture.tools.trace import Trace

    Make = Callable[..., Trace]


def test_streams_at_once(trace: Make) -> None:
    (tool,) = load(["stream_overlap"])
    kernels = [("a", 100, 200), ("b", 150, 250), ("a", 300, 310)]
    frame = tool.run([trace(kernels, queue=[0, 1, 0])]).frame
    assert frame[["streams", "busy_streams", "time_ns"]].to_numpy().tolist() == [[2, 1, 110], [2, 2, 50]]
    assert frame["share_of_busy"].sum() == pytest.approx(1)


def test_streams_that_take_turns_are_named(trace: Make) -> None:
    (tool,) = load(["stream_overlap"])
    kernels = [(name, at, at + 90) for at, name in zip(range(100, 1100, 100), "ab" * 5, strict=True)]
    (advice,) = tool.run([trace(kernels, queue=[0, 1] * 5)]).advice
    assert "2 streams" in advice.evidence


def _chain(times: int) -> list[tuple[str, int, int]]:
    """x (1 us), gap 0.5 us, y (2 us), then 100 us of nothing."""
    rows = []
    for step in range(times):
        at = 1000 + step * 103_500
        rows += [("x", at, at + 1000), ("y", at + 1500, at + 3500)]
    return rows


def test_chain_saves_its_gaps_and_at_most_all_but_its_longest_kernel(trace: Make) -> None:
    (tool,) = load(["fusion_candidates"])
    findings = tool.run([trace(_chain(12))])
    (row,) = findings.frame.to_dict("records")
    assert (row["chain"], row["length"], row["count"], row["time_ns"]) == ("x -> y", 2, 12, 36_000)
    assert (row["could_save_ns"], row["upper_bound_ns"]) == (6_000, 18_000)
    assert len(findings.advice) == 1


def test_no_chain_from_few_repeats_large_kernels_products_or_across_losses(trace: Make) -> None:
    (tool,) = load(["fusion_candidates"])
    assert len(tool.run([trace(_chain(9))]).frame) == 0
    slow = [(name, at * 40, at * 40 + (end - at) * 30) for name, at, end in _chain(12)]
    assert len(tool.run([trace(slow)]).frame) == 0
    gemm = [("volta_sgemm_32x32" if name == "y" else name, at, end) for name, at, end in _chain(12)]
    assert len(tool.run([trace(gemm)]).frame) == 0
    assert len(tool.run([trace(_chain(12), gap=[0, 1] * 12)]).frame) == 0


def test_occurrences_of_a_chain_do_not_overlap(trace: Make) -> None:
    (tool,) = load(["fusion_candidates"])
    kernels = [("x", at, at + 900) for at in range(1000, 41_000, 1000)]
    frame = tool.run([trace(kernels)]).frame
    assert dict(zip(frame["length"], frame["count"], strict=True)) == {2: 20, 3: 13, 4: 10}


def test_slower_choice_for_the_same_inputs(write_kineto: Callable[..., Path]) -> None:
    events: list[dict[str, Any]] = []
    for number in range(1, 13):
        args = {"External id": number, "Input Dims": [[64, 32], [32, 16]], "Input type": ["float", "float"]}
        place = {"ph": "X", "pid": 1, "tid": 1, "ts": number * 100}
        events.append({**place, "cat": "cpu_op", "name": "aten::mm", "dur": 10, "args": args})
        name, length = ("fast_gemm", 20.0) if number % 2 else ("slow_gemm", 30.0)
        gpu = {"device": 0, "stream": 7, "correlation": 100 + number, "External id": number}
        events.append({**place, "cat": "kernel", "name": name, "dur": length, "tid": 7, "args": gpu})
    (findings,) = analyse(read_traces([write_kineto(events)]), load(["gemm_advice"]))
    first = findings.frame.iloc[0]
    assert (first["kernel"], first["best_kernel"], first["count"]) == ("slow_gemm", "fast_gemm", 6)
    assert first["could_save_ns"] == 60_000
    assert len(findings.advice) == 1
    assert findings.notes == ()


def test_atomics_by_counter_before_name(trace: Make) -> None:
    (tool,) = load(["atomics"])
    kernels = [("plain", 0, 1000), ("indexAdd_index_add", 1000, 3000), ("other", 3000, 4000)]
    counter = Counter("smsp__sass_inst_executed_op_global_atom.sum", "inst", "ncu", "nvidia")
    counted = tool.run([trace(kernels, counters={counter: [500, np.nan, 0]})]).frame
    rows = {row["kernel"]: row for row in counted.to_dict("records")}
    assert rows.keys() == {"plain", "indexAdd_index_add"}
    assert (rows["plain"]["evidence"], rows["plain"]["atomics_per_us"]) == ("counter", 500)
    assert rows["indexAdd_index_add"]["evidence"] == "name"
    assert np.isnan(rows["indexAdd_index_add"]["atomics"])
