"""One region of a program alone: in Kineto, in Nsight Systems, in a captured OpenCL program; calls of MPI."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import penrose_ray as pr
from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.marks import Mark, read_marks
from penrose_ray.capture.recording import Recording
from penrose_ray.capture.ring import LAUNCHES_AT, PID_AT
from penrose_ray.capture.tally import Tally
from penrose_ray.capture.tools.reading import of_recording, read_traces
from penrose_ray.capture.tools.regions import only, within
from penrose_ray.capture.tools.registry import load
from penrose_ray.capture.tools.trace import HostKind, HostTable
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.capture.tools.trace import Trace

    Make = Callable[..., Trace]


def launched(name: str, number: int, ts: float, thread: int = 1) -> list[dict[str, Any]]:
    """A launching call and its kernel."""
    args = {"correlation": number}
    call = {"ph": "X", "pid": 1, "tid": thread, "ts": ts, "dur": 1, "args": args}
    gpu = {"ph": "X", "pid": 0, "tid": 7, "ts": ts + 2, "dur": 5, "args": {"device": 0, "stream": 7, **args}}
    return [
        {**call, "cat": "cuda_runtime", "name": "cudaLaunchKernel"},
        {**gpu, "cat": "kernel", "name": name},
    ]


def region(name: str, ts: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur}


def kernels(trace: Trace) -> list[str]:
    return [trace.names[name] for name in trace.device.name]


def test_what_was_launched_inside_a_region_is_left(write_kineto: Callable[..., Path]) -> None:
    events = [
        region("train", 0, 100), region("forward", 10, 20), region("train", 200, 50),
        *launched("a", 1, 5), *launched("b", 2, 12), *launched("c", 3, 150), *launched("d", 4, 210),
        *launched("e", 5, 13, thread=2),
    ]  # fmt: skip
    (trace,) = read_traces([write_kineto(events)])

    assert kernels(within(trace, "train")) == ["a", "b", "d"]
    inner = within(trace, "forward")
    assert kernels(inner) == ["b"]
    assert {inner.names[name] for name in inner.host.name} == {"forward", "cudaLaunchKernel"}
    assert all(len(values) == 1 for values in (inner.counters or {}).values())
    nothing = within(trace, "validate")
    assert len(nothing.device) == 0
    assert nothing.warnings == ("There is no region 'validate'; there are train, forward.",)
    assert list(only([trace], "")) == [trace]


def test_ranges_of_nsight_systems_are_operators_and_regions(real_traces: Path) -> None:
    """Counted by SQL in the file: calls, and kernels whose call begins inside a range of an operator."""
    path = real_traces / "traces/nsys-ai__fixtures__h100_2gpu_1s.sqlite.gz"
    traces = list(read_traces([path]))
    calls = [trace.host.take(trace.host.kind == HostKind.CALL) for trace in traces]
    assert sum(map(len, calls)) == 5_796
    findings = load(["operator_map"])[0].run(traces)
    assert findings.figures["linked"] == 1_632
    linear = findings.frame[findings.frame["top_operator"] == "aten::linear"]
    assert linear["count"].sum() == 244


def nsys_file(path: Path) -> Path:
    """Two kernels of one process: one launched inside a range and before, one during, a call of MPI."""
    pid = 77 << 24
    with closing(sqlite3.connect(path)) as file:
        file.executescript(
            """
            CREATE TABLE StringIds (id INTEGER, value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
                start, "end", globalPid, deviceId, streamId, correlationId, demangledName);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start, "end", globalTid, correlationId, nameId);
            CREATE TABLE NVTX_EVENTS (start, "end", globalTid, text, textId);
            CREATE TABLE MPI_COLLECTIVES_EVENTS (start, "end", globalTid, textId);
            """
        )
        rows = file.executemany
        rows("INSERT INTO StringIds VALUES (?, ?)", [(1, "first"), (2, "second"), (3, "cudaLaunchKernel")])
        rows("INSERT INTO StringIds VALUES (?, ?)", [(4, "MPI_Allreduce"), (5, "step, op_id = 3")])
        rows(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 0, 7, ?, ?)",
            [(1000, 1500, pid, 1, 1), (3000, 4000, pid, 2, 2)],
        )
        rows(
            "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 3)",
            [(900, 950, pid | 5, 1), (2950, 2960, pid | 5, 2)],
        )
        rows(
            "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?)",
            [(800, 1600, pid | 5, None, 5), (2900, None, pid | 5, "a mark", None)],
        )
        rows("INSERT INTO MPI_COLLECTIVES_EVENTS VALUES (?, ?, ?, 4)", [(1400, 3200, pid | 5)])
        file.commit()
    return path


def test_calls_of_mpi_leave_a_bubble_where_the_device_is_idle(tmp_path: Path) -> None:
    """1,400 to 3,200 inside MPI; the device is busy to 1,500 and from 3,000: 1,500 of 1,800 ns idle."""
    (trace,) = read_traces([nsys_file(tmp_path / "run.sqlite")])
    findings = load(["comm_overlap"])[0].run([trace])
    (row,) = findings.frame.to_dict("records")

    assert (row["mpi_ns"], row["mpi_bubble_ns"]) == (1800, 1500)
    assert findings.figures["mpi_bubble_ns"] == 1500
    assert "83%" in findings.advice[0].evidence
    assert kernels(within(trace, "step")) == ["first"]


def test_without_mpi_there_is_no_bubble(trace: Make) -> None:
    made = trace([("a", 0, 5), ("b", 50, 60)])
    findings = load(["comm_overlap"])[0].run([made])
    assert findings.frame["mpi_ns"].tolist() == [0]
    assert findings.advice == ()
    host = HostTable.of(1, kind=HostKind.REGION, name=len(made.names), start_ns=10, end_ns=30)
    called = replace(made, names=(*made.names, "MPI_Wait"), host=host)
    assert load(["comm_overlap"])[0].run([called]).frame["mpi_bubble_ns"].tolist() == [20]


def test_marks_of_a_captured_program_nest() -> None:
    """Launches 1 to 6: outer 2 to 5, inner 3 to 4."""
    counter = Counter("duration", "ns", "opencl", "any")
    batch = EventBatch.of(6, 1, name_id=np.arange(6), correlation=np.arange(1, 7))
    marks = {0: (Mark(1, 5, "outer"), Mark(2, 4, "inner"))}
    recording = Recording("live", batch, tuple("abcdef"), ("gpu",), (counter,), Tally(), marks=marks)
    (found,) = of_recording(recording, "program")

    assert kernels(within(found, "outer")) == ["b", "c", "d", "e"]
    assert kernels(within(found, "inner")) == ["c", "d"]
    frame = load(["operator_map"])[0].run([found]).frame
    assert dict(zip(frame["kernel"], frame["region"], strict=True)) == {
        "a": "", "b": "outer", "c": "inner", "d": "inner", "e": "outer", "f": "",
    }  # fmt: skip


def test_regions_are_noted_beside_the_ring_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = tmp_path / "abc.ring"
    monkeypatch.setenv("PENROSE_RING_DIR", str(tmp_path))

    def launch(count: int) -> None:
        header = bytearray(4096)
        header[PID_AT : PID_AT + 8] = os.getpid().to_bytes(8, "little")
        header[LAUNCHES_AT : LAUNCHES_AT + 8] = count.to_bytes(8, "little")
        ring.write_bytes(header)

    @pr.annotate("failed")
    def fails() -> None:
        launch(9)
        raise KeyError

    with pr.annotate("before the first launch"):
        with pr.annotate("nothing"):
            pass
        launch(3)
    with pr.annotate("outer"), pr.annotate("inner"):
        launch(7)
    with pytest.raises(KeyError):
        fails()

    with ring.with_suffix(".regions").open("ab") as file:
        file.write(b'[9, 12, "cut of')
    assert read_marks(ring) == (
        Mark(0, 3, "before the first launch"),
        Mark(3, 7, "outer"),
        Mark(3, 7, "inner"),
        Mark(7, 9, "failed"),
    )
    assert ring.with_suffix(".regions").stat().st_mode & 0o077 == 0
    assert read_marks(tmp_path / "other.ring") == ()
