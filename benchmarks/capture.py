"""Capture: reading Kineto files against Holistic Trace Analysis, OpenCL live and preloaded, batches, ranks.

The large file is df_index_resolver six times over, times and ids shifted, made in a temporary folder. Both
readers run in processes of their own, in turn; `*_peak_mb` is that of the whole process.
Without PENROSE_TRACES or without HolisticTraceAnalysis (extra `bench`) the figures that need them are null.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.harness import Contender, Timing, arguments, finish, show, significant, take_turns
from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.preload import opencl_environment
from penrose_ray.capture.processor import EventProcessor
from penrose_ray.capture.ring import DEVICE_NAME, KERNEL_NAME, RECORD, RingWriter
from penrose_ray.capture.ring_source import RingSource

TRACE = "traces/HolisticTraceAnalysis__df_index_resolver__df_index_resolver.json.gz"
COPIES = 6
LARGE_FILE_ROUNDS = 3
LAUNCHES = 20_000
POLL = 4096
BATCH = 100_000
BATCHES = 10
RANKS = 8
RANK_LAUNCHES = 100_000
RANK_POLL = 16_384


def main() -> None:
    """Run all groups; the last line is the JSON object."""
    if sys.argv[1:2] == ["--read"]:
        read(sys.argv[2], Path(sys.argv[3]))
        return
    options = arguments("Capture: Kineto reading, live OpenCL, batches, ranks.")
    rounds: int = options.rounds
    result = kineto(min(rounds, LARGE_FILE_ROUNDS)) | live(rounds, quiet=options.json)
    result |= preloaded(rounds, quiet=options.json)
    result |= batches(rounds, quiet=options.json) | ranks(rounds, quiet=options.json)
    finish(result)


def read(reader: str, path: Path) -> None:
    """Read a file in this process and print what it took: the child's side of `kineto`."""
    kernels, duration_us, cpu_s, wall_s = (_read_ours if reader == "ours" else _read_hta)(path)
    status = Path("/proc/self/status").read_text()  # getrusage would count the parent's memory at the fork
    peak = int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024
    print(json.dumps([kernels, duration_us, cpu_s, wall_s, peak]))


def _read_ours(path: Path) -> tuple[int, float, float, float]:
    from penrose_ray.capture.formats import read_recording  # noqa: PLC0415 - one reader a process

    wall, cpu = time.perf_counter(), time.process_time()
    batch = read_recording(path).batch
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return len(batch), float((batch.end_ns - batch.start_ns).sum() / 1000), cpu, wall


def _read_hta(path: Path) -> tuple[int, float, float, float]:
    from hta.common.trace_parser import parse_trace_dataframe  # noqa: PLC0415 - one reader a process
    from hta.configs.parser_config import ParserConfig  # noqa: PLC0415 - as above

    config = ParserConfig.get_default_cfg()
    wall, cpu = time.perf_counter(), time.process_time()
    _, frame, symbols = parse_trace_dataframe(str(path), config)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    kernels = frame[frame["cat"] == symbols.sym_index["kernel"]]
    return len(kernels), float(kernels["dur"].sum()), cpu, wall


def kineto(rounds: int) -> dict[str, object]:
    """The large file, both readers in turn."""
    names = ("kineto_speed_vs_hta_ratio", "kineto_mb_per_s", "kineto_wall_mb_per_s", "large_file_peak_mb")
    result: dict[str, object] = dict.fromkeys((*names, "large_file_memory_vs_hta_ratio", "large_file_mb"))
    traces = os.environ.get("PENROSE_TRACES")
    if not traces:
        return result
    readers = ["ours", "hta"] if importlib.util.find_spec("hta") else ["ours"]
    with tempfile.TemporaryDirectory() as folder:
        path = large_file(Path(traces) / TRACE, Path(folder))
        size_mb = path.stat().st_size / 1e6
        runs: dict[str, list[list[float]]] = {reader: [] for reader in readers}
        for _ in range(rounds):
            for reader in readers:
                runs[reader].append(_child(reader, path))
    if len({(run[0], round(run[1])) for each in runs.values() for run in each}) != 1:
        raise SystemExit(f"The readers differ in kernels or durations: {runs}")
    median = {
        reader: [statistics.median(column) for column in zip(*each, strict=True)]
        for reader, each in runs.items()
    }
    _, _, cpu_s, wall_s, peak_mb = median["ours"]
    result |= {
        "large_file_mb": significant(size_mb),
        "kineto_mb_per_s": significant(size_mb / cpu_s),
        "kineto_wall_mb_per_s": significant(size_mb / wall_s),
        "large_file_peak_mb": significant(peak_mb),
    }
    if "hta" in median:
        result["kineto_speed_vs_hta_ratio"] = significant(median["hta"][2] / cpu_s)
        result["large_file_memory_vs_hta_ratio"] = significant(median["hta"][4] / peak_mb)
    return result


def _child(reader: str, path: Path) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.capture", "--read", reader, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    values: list[float] = json.loads(done.stdout.splitlines()[-1])
    return values


def large_file(source: Path, folder: Path) -> Path:
    """The trace's events `COPIES` times; each copy 20 s and 10 million ids later than the one before."""
    text = gzip.decompress(source.read_bytes())
    first = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    last = text.rindex(b"]")
    events = text[first:last].strip()
    path = folder / "large.json"
    with path.open("wb") as file:
        file.write(text[:first])
        for copy in range(COPIES):
            shifted = _shifted(rb'("ts": )(\d+)', events, copy * 20_000_000)
            shifted = _shifted(rb'("(?:correlation|External id)": )(\d+)', shifted, copy * 10_000_000)
            file.write((b",\n  " if copy else b"\n  ") + shifted)
        file.write(b"\n  " + text[last:])
    return path


def _shifted(pattern: bytes, text: bytes, by: int) -> bytes:
    return re.sub(pattern, lambda match: match[1] + b"%d" % (int(match[2]) + by), text) if by else text


def live(rounds: int, *, quiet: bool) -> dict[str, object]:
    """CPU time that capture adds to a launch: the hook in the program's thread, and polling."""
    import pyopencl as cl  # noqa: PLC0415 - optional extra `opencl`

    from penrose_ray.capture.opencl import OpenCLSource, profiled_queue  # noqa: PLC0415 - as above

    queue = profiled_queue()
    kernel = cl.Kernel(cl.Program(queue.context, "kernel void nothing() {}").build(), "nothing")
    source = OpenCLSource(capacity=LAUNCHES)

    def launches() -> None:
        for _ in range(LAUNCHES):
            kernel(queue, (64,), None)
        queue.finish()

    def captured() -> None:
        source.arm(range(source.health().seen, source.health().seen + LAUNCHES, 100), source.counters)
        with source:
            launches()
            while len(source.poll(POLL)):
                pass

    turns = [Contender("plain", launches, LAUNCHES), Contender("captured", captured, LAUNCHES)]
    timings = take_turns(turns, rounds=rounds, clock=time.thread_time)
    if not quiet:
        show(timings, unit="us")
    pairs = zip(timings["captured"].seconds, timings["plain"].seconds, strict=True)
    added_us = statistics.median(with_ - without for with_, without in pairs) * 1e6
    return {
        "live_us_per_launch": significant(added_us),
        "plain_us_per_launch": significant(timings["plain"].median_s * 1e6),
    }


def preloaded(rounds: int, *, quiet: bool) -> dict[str, object]:
    """CPU time that the preloaded library adds to a launch of an unmodified program, noting and paused."""
    ns: dict[str, list[float]] = {"not preloaded": [], "noting": [], "paused": []}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        rings = Path(folder) / "rings"
        command = _launching_program(Path(folder))
        plain, captured = (
            stack.enter_context(
                subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            for env in (None, opencl_environment(rings))
        )
        source = stack.enter_context(RingSource(rings, vendor="none"))
        for number in range(rounds + 1):
            for name, program in (("not preloaded", plain), ("noting", captured), ("paused", captured)):
                source.pause(paused=name == "paused")
                took = _one_turn(program)
                while len(source.poll(POLL)):
                    pass
                ns[name] += [took] if number else []
        noted, spent_ns = source.health().seen, source.spent_ns
        for program in (plain, captured):
            program.communicate()
    if not quiet:
        show({name: Timing(name, tuple(np.array(each) / 1e9)) for name, each in ns.items()}, unit="us")
    added = {name: statistics.median(np.subtract(ns[name], ns["not preloaded"])) for name in ns}
    return {
        "preload_ns_per_launch": significant(added["noting"]),
        "preload_paused_ns_per_launch": significant(added["paused"]),
        "preload_accounted_ns_per_launch": significant(spent_ns / noted),
    }


def _launching_program(folder: Path) -> list[str]:
    """A compiled program that launches with an OpenCL library whose launches cost nothing."""
    here = Path(__file__).parent
    library, program = folder / "libOpenCL.so", folder / "launches"
    compilations = (
        ["-shared", "-fPIC", "-o", library, here / "opencl_standin.c"],
        ["-o", program, here / "opencl_launches.c", library, f"-Wl,-rpath,{folder}"],
    )
    for arguments_ in compilations:
        subprocess.run([shutil.which("cc") or "cc", "-O2", *arguments_], check=True)
    return [str(program)]


def _one_turn(program: subprocess.Popen[str]) -> float:
    if program.stdin is None or program.stdout is None:
        raise SystemExit("the program has no pipes")
    program.stdin.write(f"{LAUNCHES}\n")
    program.stdin.flush()
    return float(program.stdout.readline())


def batches(rounds: int, *, quiet: bool) -> dict[str, object]:
    """Launches a second from columns, slightly out of order as parallel streams deliver them, to order."""
    rng = np.random.default_rng(1)
    total = BATCH * BATCHES
    correlation = np.arange(1, total + 1)
    arrival = np.argsort(correlation + rng.integers(0, 400, total), kind="stable")
    whole = EventBatch.of(
        total,
        3,
        correlation=correlation[arrival],
        start_ns=correlation[arrival] * 1000,
        end_ns=correlation[arrival] * 1000 + 700,
        name_id=rng.integers(0, 60, total),
        stream=rng.integers(0, 3, total),
    )
    parts = [whole.take(slice(first, first + BATCH)) for first in range(0, total, BATCH)]

    def digest() -> None:
        processor = EventProcessor(hold=1000)
        given = 0
        for part in parts:
            processor.feed(part)
            given += len(processor.take() or ())
        given += len(processor.take(last=True) or ())
        if given != total:
            raise SystemExit(f"{given} of {total} launches came out")

    timings = take_turns([Contender("order and filter a launch", digest, total)], rounds=rounds)
    if not quiet:
        show(timings, unit="us")
    return {"batch_launches_per_s": significant(1 / timings["order and filter a launch"].median_s)}


def ranks(rounds: int, *, quiet: bool) -> dict[str, object]:
    """Cost of a launch with 8 ranks in one analysis, over that with one; the ranks' writing is not timed."""
    with tempfile.TemporaryDirectory() as folder:
        analyses = {count: _Analysis(Path(folder) / str(count), count) for count in (1, RANKS)}
        seconds: dict[int, list[float]] = {count: [] for count in analyses}
        for _ in range(rounds + 1):
            for count, analysis in analyses.items():
                seconds[count].append(
                    sum(analysis.cycle() for _ in range(RANKS // count)) / RANKS / RANK_LAUNCHES
                )
    timings = {f"{count} ranks": Timing(f"{count} ranks", tuple(each[1:])) for count, each in seconds.items()}
    if not quiet:
        show(timings, unit="us")
    ratio = timings[f"{RANKS} ranks"].median_s / timings["1 ranks"].median_s
    return {"ranks_8_over_1_ratio": significant(ratio)}


class _Analysis:
    """Ranks write rings; one reader brings them into launch order."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._folder.mkdir(mode=0o700)
        self._writers = [RingWriter(folder / f"{rank}.ring", records=RANK_LAUNCHES) for rank in range(count)]
        self._records = np.zeros(RANK_LAUNCHES, dtype=RECORD)
        self._records["correlation"] = np.arange(1, RANK_LAUNCHES + 1)
        self._records["name"] = np.arange(RANK_LAUNCHES) % 40
        for writer in self._writers:
            for name in range(40):
                writer.add_name(KERNEL_NAME, f"kernel {name}")
            writer.add_name(DEVICE_NAME, "GPU")

    def cycle(self) -> float:
        """Let every rank fill its ring, then read and order the launches; returns the CPU seconds of that."""
        total = len(self._writers) * RANK_LAUNCHES
        with RingSource(self._folder, vendor="none", capacity=total) as source:
            for writer in self._writers:
                writer.append(self._records)
            start = time.process_time()
            processor = EventProcessor()
            given = 0
            while len(batch := source.poll(RANK_POLL)):
                processor.feed(batch)
                given += len(processor.take() or ())
            taken = time.process_time() - start
        if given != total:
            raise SystemExit(f"{given} of {total} launches came out")
        return taken


if __name__ == "__main__":
    main()
