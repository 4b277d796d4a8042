"""llm, uvm_faults and annotate on what is known by construction."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

import penrose_ray as pr
from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.tools.reading import read_traces
from penrose_ray.capture.tools.registry import load
from penrose_ray.capture.tools.session import analyse

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.capture.tools.trace import Trace

    Make = Callable[..., Trace]

MIXED = "execute_8192_context_9(x)_generation_37(y)"


def test_phase_by_attention_kernel_until_the_next(trace: Make) -> None:
    kernels = [
        ("prefill_attention", 10, 30),
        ("gemm", 30, 40),
        ("paged_attention_v2", 50, 55),
        ("gemm", 55, 56),
    ]
    findings = load(["llm"])[0].run([trace(kernels)])
    found = {(row["phase"], row["part"]): row["total_ns"] for row in findings.frame.to_dict("records")}
    assert found == {
        ("prefill", "attention"): 20,
        ("prefill", "products"): 10,
        ("decode", "attention"): 5,
        ("decode", "products"): 1,
    }
    assert "guessed" in findings.notes[0]


def test_regions_of_the_server_tell_the_phase(write_kineto: Callable[..., Path]) -> None:
    def step(name: str, number: int) -> list[dict[str, Any]]:
        place = {"ph": "X", "pid": 1, "tid": 1, "ts": 100 * number}
        args = {"correlation": number}
        gpu = {"device": 0, "stream": 7, **args}
        return [
            {**place, "cat": "user_annotation", "name": name, "dur": 50},
            {**place, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1, "args": args},
            {**place, "cat": "kernel", "name": "unified_attention", "dur": 10, "args": gpu},
        ]

    names = [MIXED, MIXED.replace("context_9", "context_0"), MIXED.replace("generation_37", "generation_0")]
    events = [event for number, name in enumerate(names, start=1) for event in step(name, number)]
    (findings,) = analyse(read_traces([write_kineto(events)]), load(["llm"]))
    assert set(findings.frame["phase"]) == {"mixed", "decode", "prefill"}
    assert findings.notes == ()


def test_no_language_model_no_rows(trace: Make) -> None:
    assert len(load(["llm"])[0].run([trace([("conv", 0, 5)])]).frame) == 0


def test_real_vllm_step(real_traces: Path) -> None:
    """Counted in the file by name: 24 attention and 24 cache kernels, one for each layer."""
    path = real_traces / "traces/TraceLens__inference__vllm_prefilldecode_piecewise__graph_execution.json.gz"
    (findings,) = analyse(read_traces([path]), load(["llm"]))
    counts = findings.frame.groupby("part")["count"].sum()
    assert (counts["attention"], counts["cache"]) == (24, 24)
    assert counts.sum() == 423


def test_migrations_in_their_cells(trace: Make) -> None:
    kernels = [("k", 0, 500), ("Unified Memory Memcpy HtoD", 500, 520), ("k", 520, 1000)]
    kinds = [KernelKind.KERNEL, KernelKind.COPY, KernelKind.KERNEL]
    findings = load(["uvm_faults"])[0].run([trace(kernels, kind=kinds, size_bytes=[0, 4096, 0])])
    hit = findings.frame[findings.frame["migrations"] > 0]
    assert hit[["cell", "moved_bytes", "migrating_ns", "kernel_ns"]].to_numpy().tolist() == [
        [25, 4096, 20, 0]
    ]
    assert findings.frame["kernel_ns"].sum() == 980


def test_region_reaches_the_profilers_that_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    nvtx = types.SimpleNamespace(RangePush=calls.append, RangePop=lambda: calls.append("pop"))
    monkeypatch.setitem(sys.modules, "cupy.cuda.nvtx", nvtx)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    with pytest.raises(KeyError), pr.annotate("step"):
        raise KeyError
    assert calls == ["step", "pop"]

    @pr.annotate("twice")
    def work() -> int:
        return 7

    assert (work(), work()) == (7, 7)
    assert calls[2:] == ["twice", "pop"] * 2


def test_region_needs_one_line_of_text() -> None:
    for name in ("", "a\nb"):
        with pytest.raises(ValueError, match="one line"), pr.annotate(name):
            pass
