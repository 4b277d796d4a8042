"""A month of a large fleet into frames and a report: 2,000 classes, 4 counter sets, 30 daily batches.

Each round runs in a process of its own, so that its peak memory is its own; the real writer makes the
release. The baseline is pandas alone: read_parquet and explode, on one day, in turn with `open_release`.
"""

from __future__ import annotations

import multiprocessing
import re
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from benchmarks.harness import Contender, arguments, finish, show, significant, take_turns
from penrose_ray.analyse.frames import class_table, open_release
from penrose_ray.analyse.released import read_histograms
from penrose_ray.analyse.report import write_report
from penrose_ray.histogram import BINS, Axis, Counter, CounterSet
from penrose_ray.opening import OpenedSum, Opening, write_parquet
from penrose_ray.task import Task
from penrose_ray.types import BatchId, ClassId

if TYPE_CHECKING:
    from numpy.typing import NDArray

CLASSES, DAYS, FIRST_DAY = 2_000, 30, 20_000
SAMPLES = 200_000
MODELS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA L40S")


def main() -> None:
    """Open a month in fresh processes, compare one day with plain pandas; JSON in the last line."""
    options = arguments("A month of 2,000 classes into frames and a report.")
    rounds = max(1, min(options.rounds, 3))
    with tempfile.TemporaryDirectory() as folder:
        month, day = Path(folder) / "month.parquet", Path(folder) / "day.parquet"
        write_releases(month, day)
        measured = [measure_apart(month) for _ in range(rounds)]
        timings = take_turns(
            [
                Contender("pandas: read_parquet, explode (one day)", lambda: plain(day)),
                Contender("open_release (one day)", lambda: open_release(day)),
            ],
            rounds=rounds + 1,
        )
        megabytes = month.stat().st_size / 1e6
    result = {name: significant(median(each[name] for each in measured), 3) for name in measured[0]}
    if not options.json:
        show(timings)
        print(result)
    before, after = timings.values()
    ratio = significant(before.median_s / after.median_s, 3)
    finish({**result, "file_mb": significant(megabytes, 3), "plain_ratio": ratio, "rounds": rounds})


def measure_apart(release: Path) -> dict[str, float]:
    """`measure` in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context) as pool:
        return pool.submit(measure, release).result()


def measure(release: Path) -> dict[str, float]:
    """Seconds of each step (wall, and CPU of frames and report) and the peak memory so far."""
    pd.read_parquet(release, columns=["batch"])  # loads pyarrow
    steps = {
        "frames": lambda: open_release(release, batches="sum"),
        "table": lambda: class_table(release),
        "report": lambda: write_report(release, release.with_suffix(".html")),
    }
    seconds: dict[str, float] = {}
    for name, step in steps.items():
        start, cpu = time.perf_counter(), time.process_time()
        step()
        seconds[f"{name}_s"] = time.perf_counter() - start
        seconds[f"{name}_cpu_s"] = time.process_time() - cpu
    seconds["memory_mb"] = _peak_mb()
    start = time.perf_counter()
    read_histograms(release)
    seconds["day_by_day_s"] = time.perf_counter() - start
    seconds["day_by_day_memory_mb"] = _peak_mb()
    return seconds


def _peak_mb() -> float:
    """High-water mark of this program; getrusage would count the parent's memory at the fork as well."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]  # Linux has it


def plain(release: Path) -> pd.DataFrame:
    """One row a bin, without edges, intervals or checks."""
    table = pd.read_parquet(release)
    return table.explode("bins", ignore_index=True)


def write_releases(month: Path, day: Path) -> None:
    """The month, and its first day alone."""
    sets, random = counter_sets(), np.random.default_rng(1)
    task = Task(
        name="month",
        demo=False,
        public_key=b"",
        counter_sets=sets,
        rotation=(tuple(each.name for each in sets),),
    )
    shapes = random.dirichlet(np.full(BINS, 0.3), (CLASSES, len(sets)))
    openings = [one_day(task, shapes, random, BatchId(FIRST_DAY + each)) for each in range(DAYS)]
    write_parquet(openings, month)
    write_parquet(openings[:1], day)


def counter_sets() -> tuple[CounterSet, ...]:
    """Three log axes and a joint set."""
    names = ("duration", "queue_delay", "gap")
    single = [
        CounterSet(n, (Counter(n, "ns", "cupti", "nvidia"),), axes=(Axis("log", 1e3, 1e9),)) for n in names
    ]
    use = [Counter(name, "%", "dcgm", "nvidia") for name in ("dram_active", "tensor_active")]
    axes = (Axis("linear", 0, 100, 16), Axis("linear", 0, 100, 8))
    return (*single, CounterSet("dram_tensor", tuple(use), axes=axes))


def one_day(task: Task, shapes: NDArray[np.float64], random: np.random.Generator, batch: BatchId) -> Opening:
    """Every class and counter set, each with a size of its own."""
    sizes = random.uniform(0.5, 1.5, shapes.shape[:2]) * SAMPLES
    counts = np.rint(shapes * sizes[..., None]).astype(np.int64)
    sums = [
        OpenedSum(
            ClassId(number.to_bytes(16, "big")), MODELS[number % len(MODELS)], one, batch, 240, 216,
            int(counts[number, place].sum()), counts[number, place],
        )
        for number in range(CLASSES)
        for place, one in enumerate(task.counter_sets)
    ]  # fmt: skip
    return Opening(task, batch, tuple(sums), ())


if __name__ == "__main__":
    main()
