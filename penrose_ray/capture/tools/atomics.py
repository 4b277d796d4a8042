"""Kernels that spend their time on atomic operations, by counters or, without them, by name."""

from __future__ import annotations

import re
from typing import ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.kernels import readable
from penrose_ray.capture.tools.trace import Trace  # noqa: TC001 - named in signatures of a documented class

_NAMES = re.compile(
    r"atomic|scatter_?(?:add|reduce)|index_(?:add|put)|embedding.*backward|histc", re.IGNORECASE
)
_COUNTERS = r"inst_executed_op_(?:global|shared|generic)_(?:atom|red)\w*\.sum$|^TCC_ATOMIC_sum$"
_MUCH = 0.05


class Atomics(Tool):
    """Per kernel: atomic operations where the profiler counted them, and time of kernels named for them."""

    name = "atomics"
    columns = ("rank", "kernel", "evidence", "count", "atomics", "atomics_per_us", "total_ns", "share")
    secret = ("rank", "kernel")
    blind_to: ClassVar[str] = (
        "Atomics in kernels whose name does not say so, when the profiler counted none; contention itself."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        table = trace.device
        if not len(table):
            return
        counted = trace.measured(_COUNTERS)
        named = np.array([_NAMES.search(name) is not None for name in trace.names])
        values = np.full(len(table), np.nan) if counted is None else counted
        interesting = named[table.name] | (np.nan_to_num(values) > 0)
        length = np.nan_to_num(trace.duration_ns)
        whole = length.sum()
        for name in np.unique(table.name[interesting]):
            mine = (table.name == name) & interesting
            measured = mine & np.isfinite(values)
            total = float(length[mine].sum())
            atomics = float(values[measured].sum()) if measured.any() else np.nan
            time = float(length[measured].sum())
            self._rows.append(
                {
                    "rank": trace.label,
                    "kernel": readable(trace.names[name]),
                    "evidence": "counter" if measured.any() else "name",
                    "count": int(mine.sum()),
                    "atomics": atomics,
                    "atomics_per_us": atomics * 1000 / time if time else np.nan,
                    "total_ns": total,
                    "share": total / whole if whole else np.nan,
                }
            )

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows, sort_by="total_ns")
        much = frame[frame["share"] > _MUCH]
        advice = tuple(
            Advice(
                f"Reduce within a block before {row['kernel']} writes, or sort its indices first.",
                f"It takes {row['share']:.0%} of the device time of {row['rank']}, by its {row['evidence']}.",
                0.5 if row["evidence"] == "counter" else 0.25,
            )
            for row in much.to_dict("records")
        )
        return Findings(self.name, frame, {"kernels": float(len(frame))}, advice)
