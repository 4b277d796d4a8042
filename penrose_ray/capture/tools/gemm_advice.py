"""Matrix products that ran slower than the same product elsewhere in the run."""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.kernels import is_gemm, readable
from penrose_ray.capture.tools.links import link
from penrose_ray.capture.tools.trace import Trace  # noqa: TC001 - named in signatures of a documented class

_WORTH = 1.2
_FEWEST = 3
_MOST_ADVICE = 5


class GemmAdvice(Tool):
    """Compares kernels that one operator chose for inputs of the same sizes and types, by their medians."""

    name = "gemm_advice"
    columns = (
        "operator",
        "inputs",
        "kernel",
        "count",
        "median_ns",
        "best_kernel",
        "best_median_ns",
        "could_save_ns",
    )
    secret = ("operator", "inputs", "kernel", "best_kernel")
    blind_to: ClassVar[str] = (
        "Products whose operator carries no input sizes (record shapes), and kernels that no rank tried."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._times: defaultdict[tuple[str, str], defaultdict[str, list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._gemms = self._known = 0

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        gemm = np.array([is_gemm(name) for name in trace.names] or [False])
        table = trace.device
        if not len(table):
            return
        rows = np.flatnonzero(gemm[table.name] & table.timed)
        self._gemms += len(rows)
        if not len(trace.host) or not len(rows):
            return
        operator = link(trace).operator[rows]
        shape = np.where(operator >= 0, trace.host.shape[operator], 0)
        length = table.duration_ns
        for row, op, inputs in zip(rows.tolist(), operator.tolist(), shape.tolist(), strict=True):
            if inputs:
                self._known += 1
                key = trace.names[trace.host.name[op]], trace.shapes[inputs]
                self._times[key][readable(trace.names[table.name[row]])].append(float(length[row]))

    def finish(self) -> Findings:
        """The table, and what to do."""
        rows = []
        for (operator, inputs), kernels in self._times.items():
            medians = {
                kernel: float(np.median(times)) for kernel, times in kernels.items() if len(times) >= _FEWEST
            }
            if not medians:
                continue
            best = min(medians, key=medians.__getitem__)
            for kernel, median in medians.items():
                values = operator, inputs, kernel, len(kernels[kernel]), median, best, medians[best]
                saving = (median - medians[best]) * len(kernels[kernel])
                rows.append(dict(zip(self.columns, (*values, saving), strict=True)))
        frame = self.frame(rows, sort_by="could_save_ns")
        slow = frame[frame["median_ns"] > _WORTH * frame["best_median_ns"]].head(_MOST_ADVICE)
        advice = tuple(
            Advice(
                f"{row['operator']}: prefer {row['best_kernel']} (tune the library's choice, or fix it).",
                f"{row['count']} runs of {row['kernel']} with the same inputs take "
                f"{row['median_ns'] / 1000:.4g} us, the other {row['best_median_ns'] / 1000:.4g} us; "
                f"{row['could_save_ns'] / 1e6:.3g} ms in all.",
                0.5,
            )
            for row in slow.to_dict("records")
        )
        notes = []
        if self._gemms > self._known:
            notes.append(f"{self._gemms - self._known} of {self._gemms} products have no known input sizes.")
        figures = {"products": float(self._gemms), "could_save_ns": float(slow["could_save_ns"].sum())}
        return Findings(self.name, frame, figures, advice, tuple(notes))
