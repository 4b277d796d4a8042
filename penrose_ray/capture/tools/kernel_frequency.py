"""Which kernels run how often and how long."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.kernels import purposes, readable
from penrose_ray.capture.tools.trace import Trace  # noqa: TC001 - named in signatures of a documented class

_SHORT_NS = 5_000
_MANY = 0.5
_LARGE_SHARE = 0.25


class KernelFrequency(Tool):
    """Counts and times per rank and name; copies and sets of memory are rows too."""

    name = "kernel_frequency"
    columns = (
        "rank",
        "kernel",
        "purpose",
        "count",
        "timed",
        "total_ns",
        "mean_ns",
        "std_ns",
        "min_ns",
        "max_ns",
        "share",
    )
    secret = ("rank", "kernel")
    blind_to: ClassVar[str] = (
        "Launches that the profiler lost, and kernels inside a graph that it shows as one."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []
        self._short = self._timed = 0
        self._gaps = 0

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        table = trace.device
        self._gaps += int(table.gap.sum())
        if not len(table):
            return
        names, place = np.unique(table.name, return_inverse=True)
        length = trace.duration_ns
        timed = np.isfinite(length)
        self._timed += int(timed.sum())
        self._short += int((length < _SHORT_NS).sum())
        count = np.bincount(place)
        measured = np.bincount(place, weights=timed)
        total = np.bincount(place, weights=np.where(timed, length, 0))
        mean = np.divide(total, measured, out=np.full(len(names), np.nan), where=measured > 0)
        square = np.bincount(place, weights=np.where(timed, (length - mean[place]) ** 2, 0))
        low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
        np.minimum.at(low, place[timed], length[timed])
        np.maximum.at(high, place[timed], length[timed])
        purpose = purposes(trace)[np.unique(place, return_index=True)[1]]
        whole = total.sum()
        for row in range(len(names)):
            known, more = measured[row] > 0, measured[row] > 1
            self._rows.append(
                {
                    "rank": trace.label,
                    "kernel": readable(trace.names[names[row]]),
                    "purpose": str(purpose[row]),
                    "count": int(count[row]),
                    "timed": int(measured[row]),
                    "total_ns": float(total[row]) if known else np.nan,
                    "mean_ns": float(mean[row]),
                    "std_ns": float(np.sqrt(square[row] / (measured[row] - 1))) if more else np.nan,
                    "min_ns": float(low[row]) if known else np.nan,
                    "max_ns": float(high[row]) if known else np.nan,
                    "share": float(total[row] / whole) if known and whole else np.nan,
                }
            )

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows, sort_by="total_ns")
        short = self._short / self._timed if self._timed else 0.0
        advice = []
        if short > _MANY:
            advice.append(
                Advice(
                    "Launch less: capture the step as a graph, fuse small kernels or raise the batch size.",
                    f"{short:.0%} of {self._timed} timed activities last under {_SHORT_NS / 1000:g} us.",
                    0.6,
                )
            )
        if len(frame) and frame["share"].max() > _LARGE_SHARE:
            top = frame.iloc[int(frame["share"].fillna(0).to_numpy().argmax())]
            advice.append(
                Advice(
                    f"Look at {top['kernel']} first.",
                    f"It takes {top['share']:.0%} of all device time of {top['rank']}.",
                    0.5,
                )
            )
        notes = (f"Launches were lost in {self._gaps} places: counts are too low.",) if self._gaps else ()
        figures = {
            "activities": float(frame["count"].sum()) if len(frame) else 0.0,
            "device_time_ns": float(frame["total_ns"].sum()) if len(frame) else 0.0,
            "short_share": short,
        }
        return Findings(self.name, frame, figures, tuple(advice), notes)
