"""Memory that the driver moves on demand: when, how much, between which kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.intervals import overlap_with, union

if TYPE_CHECKING:
    from penrose_ray.capture.tools.trace import Trace

_UNIFIED = re.compile(r"unified|\buvm\b|page fault|managed|\[CUDA memory migration", re.IGNORECASE)
_CELLS = 50
_MUCH = 0.05


class UvmFaults(Tool):
    """A heat map in time: migrations, their bytes, and kernels under way in 50 equal cells of the run."""

    name = "uvm_faults"
    columns = ("rank", "device", "cell", "start_ns", "migrations", "moved_bytes", "migrating_ns", "kernel_ns")
    blind_to: ClassVar[str] = (
        "Addresses, and faults that the profiler does not record as activities: most traces hold none."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []
        self._span = self._moving = 0

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        named = np.array([_UNIFIED.search(name) is not None for name in trace.names] or [False])
        table = trace.device.take(trace.device.timed)
        moves = (table.kind == KernelKind.COPY) & (named[table.name] if len(table) else False)
        for device in np.unique(table.device[moves]):
            here = table.device == device
            first, last = int(table.start_ns[here].min()), int(table.end_ns[here].max())
            edges = np.linspace(first, last, _CELLS + 1).astype(np.int64)
            mine = table.take(here & moves)
            kernels = table.take(here & (table.kind == KernelKind.KERNEL))
            moving = union(mine.start_ns, mine.end_ns)
            self._span += last - first
            self._moving += int((moving[1] - moving[0]).sum())
            cell = np.clip(np.searchsorted(edges, mine.start_ns, side="right") - 1, 0, _CELLS - 1)
            counts = np.bincount(cell, minlength=_CELLS)
            size = np.bincount(cell, weights=mine.size_bytes, minlength=_CELLS)
            busy = overlap_with(edges[:-1], edges[1:], union(kernels.start_ns, kernels.end_ns))
            times = overlap_with(edges[:-1], edges[1:], moving)
            for number in range(_CELLS):
                values = trace.label, int(device), number, int(edges[number]), int(counts[number])
                more = int(size[number]), int(times[number]), int(busy[number])
                self._rows.append(dict(zip(self.columns, (*values, *more), strict=True)))

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows)
        if not len(frame):
            return Findings(self.name, frame, notes=("No migration of unified memory was seen.",))
        share = self._moving / self._span if self._span else 0.0
        advice = []
        if share > _MUCH:
            hot = frame.iloc[int(frame["moved_bytes"].to_numpy().argmax())]
            advice.append(
                Advice(
                    "Prefetch managed memory before the kernels that use it (cudaMemPrefetchAsync).",
                    f"The driver moves pages {share:.0%} of the time, most in cell {hot['cell']}: "
                    f"{hot['moved_bytes'] / 2**20:.4g} MiB in {hot['migrations']} migrations.",
                    0.5,
                )
            )
        figures = {"migrating_share": share, "moved_bytes": float(frame["moved_bytes"].sum())}
        return Findings(self.name, frame, figures, tuple(advice))
