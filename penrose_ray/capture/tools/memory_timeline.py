"""Device memory over time: the peak, who holds it then, and what is never given back."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.nesting import Nesting
from penrose_ray.capture.tools.trace import HostKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.capture.tools.trace import MemoryTable, Trace

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
        memory = trace.memory
        host = trace.host
        operators = np.flatnonzero(host.kind == HostKind.OPERATOR)
        nesting = Nesting(host.thread[operators], host.start_ns[operators], host.end_ns[operators])
        for device in np.unique(memory.device[memory.device >= 0]):
            mine = memory.take(memory.device == device)
            mine = mine.take(np.argsort(mine.time_ns, kind="stable"))
            born = np.flatnonzero(mine.size_bytes > 0)
            if not len(born):
                continue
            died = np.flatnonzero((mine.size_bytes < 0) & (mine.block > 0))
            end = np.full(int(mine.block.max()) + 1, np.iinfo(np.int64).max)
            end[mine.block[died]] = mine.time_ns[died]
            own = (mine.size_bytes > 0) | (mine.block > 0)
            level = np.cumsum(np.where(own, mine.size_bytes, 0))
            at = mine.time_ns[int(level.argmax())]
            self._peak = max(self._peak, int(level.max()))
            inner = nesting.enclosing(mine.thread[born], mine.time_ns[born])
            names = np.where(inner >= 0, host.name[operators[inner]], -1) if len(operators) else inner
            self._operators(trace, int(device), names, mine.take(born), end[mine.block[born]], int(at))

    def _operators(
        self,
        trace: Trace,
        device: int,
        names: NDArray[np.int64],
        born: MemoryTable,
        end: NDArray[np.int64],
        at: int,
    ) -> None:
        freed = end != np.iinfo(np.int64).max
        life = np.where(freed, end - born.time_ns, 0)
        self._lives += int(freed.sum())
        self._short += int((freed & (life < _SHORT_NS)).sum())
        groups: defaultdict[str, list[int]] = defaultdict(list)
        for row, name in enumerate(names.tolist()):
            groups[trace.names[name] if name >= 0 else ""].append(row)
        for operator, listed in groups.items():
            rows = np.array(listed)
            size, alive = born.size_bytes[rows], (born.time_ns[rows] <= at) & (end[rows] > at)
            self._rows.append(
                {
                    "rank": trace.label,
                    "device": device,
                    "operator": operator,
                    "allocations": len(rows),
                    "allocated_bytes": int(size.sum()),
                    "at_peak_bytes": int(size[alive].sum()),
                    "kept_bytes": int(size[~freed[rows]].sum()),
                    "median_life_ns": float(np.median(life[rows][freed[rows]]))
                    if freed[rows].any()
                    else np.nan,
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
