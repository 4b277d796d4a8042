"""Device memory over time: the peak, who holds it then, and what is never given back."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.lifetimes import Lifetimes, lifetimes

if TYPE_CHECKING:
    from penrose_ray.capture.tools.trace import Trace

_LARGE = 0.3
_SHORT_NS = 1_000_000


class MemoryTimeline(Tool):
    """Per rank, device and operator: bytes allocated, held at the device's peak, and never freed.

    The operator is the innermost one around the allocation on its thread. Memory from before the recording is
    not known, so levels count from its beginning.
    """

    name = "memory_timeline"
    columns = (
        "rank",
        "device",
        "operator",
        "allocations",
        "allocated_bytes",
        "at_peak_bytes",
        "kept_bytes",
        "median_life_ns",
    )
    secret = ("rank", "operator")
    blind_to: ClassVar[str] = (
        "Memory taken before recording began, or past the framework's allocator; a trace recorded without "
        "memory profiling has none of it."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []
        self._peak = 0
        self._short = self._lives = 0

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        for lives in lifetimes(trace):
            self._peak = max(self._peak, lives.peak_bytes)
            self._operators(trace, lives)

    def _operators(self, trace: Trace, lives: Lifetimes) -> None:
        freed, at_peak, sizes = lives.freed, lives.at_peak, lives.born.size_bytes
        life = np.where(freed, lives.end_ns - lives.born.time_ns, 0)
        self._lives += int(freed.sum())
        self._short += int((freed & (life < _SHORT_NS)).sum())
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for row, operator in enumerate(lives.operator.tolist()):
            groups[trace.names[trace.host.name[operator]] if operator >= 0 else ""].append(row)
        for name, listed in groups.items():
            rows = np.array(listed)
            ended = freed[rows]
            self._rows.append(
                {
                    "rank": trace.label,
                    "device": lives.device,
                    "operator": name,
                    "allocations": len(rows),
                    "allocated_bytes": int(sizes[rows].sum()),
                    "at_peak_bytes": int(sizes[rows][at_peak[rows]].sum()),
                    "kept_bytes": int(sizes[rows][~ended].sum()),
                    "median_life_ns": float(np.median(life[rows][ended])) if ended.any() else np.nan,
                }
            )

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows, sort_by="at_peak_bytes")
        if not len(frame):
            return Findings(
                self.name, frame, notes=("No file holds allocations: record with memory profiling.",)
            )
        advice = []
        top = frame.iloc[0]
        share = top["at_peak_bytes"] / frame["at_peak_bytes"].sum() if frame["at_peak_bytes"].sum() else 0.0
        if share > _LARGE:
            advice.append(
                Advice(
                    f"To lower the peak, look at {top['operator'] or 'allocations outside operators'} first.",
                    f"It holds {share:.0%} of what was allocated in the recording and lives at the peak "
                    f"({top['at_peak_bytes'] / 2**20:.4g} MiB of {self._peak / 2**20:.4g}).",
                    0.5,
                )
            )
        figures = {
            "peak_bytes": float(self._peak),
            "kept_bytes": float(frame["kept_bytes"].sum()),
            "short_lived_share": self._short / self._lives if self._lives else np.nan,
        }
        return Findings(self.name, frame, figures, tuple(advice))
