"""Workloads measured from recordings: launches of a real program's iteration, and how long they take.

Folders below PENROSE_TRACES: `streams` holds launches of GPU traces (CSV with start_ns, dur_ns, name_id),
`corpus` a table of recorded programs with their periods.
"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import TraceError
from penrose_ray.sim.workloads import Workload

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRACES = "PENROSE_TRACES"
_AGREEMENT = 0.9
_CODES = 4
_LEAST_LAUNCHES = 200
_CORPUS_LAUNCH_S = 30e-6
"""The corpus was recorded without a GPU: its launches get the source's mean duration."""


def from_traces(kind: str) -> Workload:
    """The workload of all recordings of a kind, `streams` or `corpus`; group 1 has the longer cycles.

    Raises:
        TraceError: PENROSE_TRACES is unset or has no such folder.
    """
    root = os.environ.get(TRACES, "")
    folder = Path(root) / kind
    if not root or not folder.is_dir():
        raise TraceError(
            f"There are no recordings at {folder if root else TRACES + ' (unset)'}.",
            remedy=f"Set {TRACES} to the folder that holds streams/ and corpus/.",
        )
    return _corpus(folder / "corpus.csv") if kind == "corpus" else _streams(folder)


def _streams(folder: Path) -> Workload:
    launches, seconds = [], []
    for path in sorted(folder.glob("*.csv.gz")):
        duration_ns, names = _columns(path)
        if len(names) < _LEAST_LAUNCHES:
            continue
        launches.append(period(names))
        seconds.append(float(duration_ns.mean()) * 1e-9)
    return _workload(launches, seconds)


def _columns(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = [(float(row["dur_ns"]), int(row["name_id"])) for row in csv.DictReader(file)]
    columns = np.array(rows)
    return columns[:, 0], columns[:, 1].astype(np.int64)


def _corpus(path: Path) -> Workload:
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    launches = [int(float(row["period"] or 0)) or _launches_a_step(row) for row in rows]
    return _workload(launches, [_CORPUS_LAUNCH_S] * len(launches))


def _launches_a_step(row: dict[str, str]) -> int:
    """For a program without a period: its mean iteration."""
    return max(1, round(int(row["tokens"]) / max(1, int(row["steps"]))))


def _workload(launches: list[int], seconds: list[float]) -> Workload:
    k = np.array(launches, np.int64)
    return Workload(k, np.array(seconds), (k > np.median(k)).astype(np.int64))


def period(names: NDArray[np.int64]) -> int:
    """Launches after which a row of kernel names repeats itself; all of them when it never does.

    Each name gets random signs; their autocorrelation, by FFT, is the share of launches that agree with the
    one a lag later. The shortest lag that comes near the best one is the period.
    """
    count = len(names)
    rng = np.random.default_rng(0)
    total = np.zeros(count // 2)
    _, ids = np.unique(names, return_inverse=True)
    for _ in range(_CODES):
        signs = rng.choice([-1.0, 1.0], int(ids.max()) + 1)[ids]
        signs -= signs.mean()
        spectrum = np.fft.rfft(signs, 2 * count)
        correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: count // 2]
        total += correlation / (count - np.arange(count // 2)) / max(signs.var(), 1e-12) / _CODES
    lags = np.flatnonzero(total[1:] >= _AGREEMENT * total[1:].max()) + 1
    best = float(total[1:].max()) if count > 3 else 0.0  # noqa: PLR2004 - shortest row with a lag
    return int(lags[0]) if best > 1 / 2 else count
