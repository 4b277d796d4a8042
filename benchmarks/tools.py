"""Tools: the figures that Holistic Trace Analysis has too, on a small file and a large one.

Each run is a process of its own, in turn; times are CPU times, children's too, of reading and analysing,
without imports, and peaks those of the whole process. The large file is that of `benchmarks.capture`; ratios
without a prefix are of it, and `large_file_s` is the time of five tools. HTA comes from this environment, or
from the interpreter that PENROSE_HTA_PYTHON names; without it, or without PENROSE_TRACES, what needs them is
null. HTA's kernels per operator take minutes: they are run once and reported apart.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import logging
import os
import re
import statistics
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import arguments, finish, significant

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from penrose_ray.capture.tools.trace import Trace

TRACE = "traces/HolisticTraceAnalysis__df_index_resolver__df_index_resolver.json.gz"
SHARED = ("kernel_frequency", "timeline_gaps", "comm_overlap")
FIVE = (*SHARED, "operator_map", "stream_overlap")
ROUNDS = 3
LARGE_ROUNDS = 2
OPERATORS_LIMIT_S = 900
_COMPARED = ("speed_vs_hta_ratio", "memory_vs_hta_ratio", "ours_s", "hta_s", "ours_peak_mb", "hta_peak_mb")
KEYS = (
    *_COMPARED,
    *(f"small_file_{key}" for key in _COMPARED),
    "operator_map_speed_vs_hta_ratio",
    "large_file_mb",
    "large_file_s",
    "large_file_peak_mb",
)


def main() -> None:
    """Run both groups; the last line is the JSON object."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], Path(sys.argv[3]), sys.argv[4].split(","))
        return
    options = arguments("Tools against Holistic Trace Analysis, and a large file.")
    from penrose_ray.capture.tools.registry import available  # noqa: PLC0415 - HTA's child has no penrose_ray

    result: dict[str, object] = dict.fromkeys(KEYS)
    traces = os.environ.get("PENROSE_TRACES")
    if traces:
        result |= small(Path(traces) / TRACE, min(options.rounds, ROUNDS))
        result |= large(Path(traces) / TRACE, min(options.rounds, LARGE_ROUNDS))
    result["tools"] = sorted(available())
    if not options.json:
        for key in KEYS:
            print(f"{key:<36} {result[key]}")
    finish(result)


def small(path: Path, rounds: int) -> dict[str, object]:
    """The file as it is, and the operators' kernels."""
    result = {f"small_file_{key}": value for key, value in against_hta(path, rounds).items()}
    interpreter = _hta_interpreter()
    if interpreter:
        ours, theirs = (_child(name, path, ["operator_map"], interpreter)[0] for name in ("ours", "hta"))
        result["operator_map_speed_vs_hta_ratio"] = significant(theirs / ours)
    return result


def large(path: Path, rounds: int) -> dict[str, object]:
    """The same figures of a file six times the size, uncompressed; then five tools over it."""
    from benchmarks.capture import large_file  # noqa: PLC0415 - HTA's child has no penrose_ray

    with tempfile.TemporaryDirectory() as folder:
        made = large_file(path, Path(folder))
        size_mb = made.stat().st_size / 1e6
        result = against_hta(made, rounds)
        seconds, peak, *_ = _child("ours", made, FIVE, None)
    return result | {
        "large_file_mb": significant(size_mb),
        "large_file_s": significant(seconds),
        "large_file_peak_mb": significant(peak),
    }


def against_hta(path: Path, rounds: int) -> dict[str, object]:
    """The same figures by both, in turn; they must agree to the microsecond."""
    interpreter = _hta_interpreter()
    contenders = ["ours", "hta"] if interpreter else ["ours"]
    runs: dict[str, list[list[float]]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name in contenders:
            runs[name].append(_child(name, path, SHARED, interpreter))
    if len({tuple(run[2:]) for each in runs.values() for run in each}) != 1:
        raise SystemExit(f"The figures differ: {runs}")
    seconds, peak = (
        {n: statistics.median(run[k] for run in each) for n, each in runs.items()} for k in (0, 1)
    )
    result: dict[str, object] = {
        "ours_s": significant(seconds["ours"]),
        "ours_peak_mb": significant(peak["ours"]),
    }
    if interpreter:
        result |= {
            "hta_s": significant(seconds["hta"]),
            "hta_peak_mb": significant(peak["hta"]),
            "speed_vs_hta_ratio": significant(seconds["hta"] / seconds["ours"]),
            "memory_vs_hta_ratio": significant(peak["ours"] / peak["hta"]),
        }
    return result


def _hta_interpreter() -> str | None:
    named = os.environ.get("PENROSE_HTA_PYTHON")
    return named or (sys.executable if importlib.util.find_spec("hta") else None)


def _child(name: str, path: Path, tools: list[str] | tuple[str, ...], hta: str | None) -> list[float]:
    interpreter = hta if name == "hta" and hta else sys.executable
    command = [interpreter, "-m", "benchmarks.tools", "--child", name, str(path), ",".join(tools)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=OPERATORS_LIMIT_S)
    values: list[float] = json.loads(done.stdout.splitlines()[-1])
    return values


def child(name: str, path: Path, tools: list[str]) -> None:
    """Run one contender in this process and print seconds, peak in MB, and its figures in whole us."""
    seconds, figures = (ours if name == "ours" else hta)(path, tools)
    status = Path("/proc/self/status").read_text()  # getrusage would count the parent's memory at the fork
    peak = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024
    print(json.dumps([seconds, peak, *figures]))


def _cpu_s() -> float:
    """CPU time of this process and its ended children: other work on the machine counts little."""
    return sum(os.times()[:4])


def ours(path: Path, tools: list[str]) -> tuple[float, list[int]]:
    """Device time, idle time and overlap (in 1/100 %)."""
    from penrose_ray.capture.tools.reading import read_traces  # noqa: PLC0415 - HTA's child has no penrose_ray
    from penrose_ray.capture.tools.registry import load  # noqa: PLC0415 - as above
    from penrose_ray.capture.tools.session import analyse  # noqa: PLC0415 - as above

    importing_s = 0.0

    def pandas_behind(traces: Iterable[Trace]) -> Iterator[Trace]:
        """A tool imports pandas for its table only, when the files are read; imports are not counted."""
        nonlocal importing_s
        yield from traces
        before = _cpu_s()
        importlib.import_module("pandas")
        importing_s = _cpu_s() - before

    chosen = load(tools)
    start = _cpu_s()
    found = {each.tool: each.figures for each in analyse(pandas_behind(read_traces([path])), chosen)}
    seconds = _cpu_s() - start - importing_s
    if "comm_overlap" not in found:
        return seconds, []
    return seconds, [
        round(found["kernel_frequency"]["device_time_ns"] / 1000),
        round(found["timeline_gaps"]["device_idle_ns"] / 1000),
        round(found["comm_overlap"]["overlap"] * 10_000),
    ]


def hta(path: Path, tools: list[str]) -> tuple[float, list[int]]:
    """The same figures by HTA, with the last profiler step, which it drops by default."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    from hta.trace_analysis import TraceAnalysis  # noqa: PLC0415 - only in the child

    start = _cpu_s()
    analysis = TraceAnalysis(trace_files={0: str(path)}, include_last_profiler_step=True)
    if list(tools) == ["operator_map"]:
        analysis.get_aten_op_kernels_and_delay(ranks=[0])
        return _cpu_s() - start, []
    options = {"duration_ratio": 1.0, "num_kernels": 100_000, "include_memory_kernels": True}
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, **options)
    analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    idle = analysis.get_temporal_breakdown(visualize=False)
    overlap = analysis.get_comm_comp_overlap(visualize=False)
    seconds = _cpu_s() - start
    return seconds, [
        round(kernels["sum (us)"].sum()),
        round(idle["idle_time(us)"].iloc[0]),
        round(overlap["comp_comm_overlap_pctg"].iloc[0] * 100),
    ]


if __name__ == "__main__":
    main()
