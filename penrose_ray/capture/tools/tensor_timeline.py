"""Each large tensor: who made it, when it lived, and whether it was there at the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.lifetimes import NEVER, Lifetimes, lifetimes
from penrose_ray.capture.tools.links import around
from penrose_ray.capture.tools.trace import HostKind

if TYPE_CHECKING:
    from penrose_ray.capture.tools.trace import Trace

_MOST = 500
"""Rows of a rank and device: those that held most bytes for most time."""
_LARGE = 0.1
_LONG = 0.5


class TensorTimeline(Tool):
    """The blocks of the framework's allocator that held most, bytes times life; the largest are shown first.

    A tensor is named by the innermost operator around its allocation, with the sizes and types of that
    operator's inputs, and by the source line and region around it where the trace has them. Times count from
    the first allocation on the device; a tensor that is never freed lives to the last one.
    """

    name = "tensor_timeline"
    columns = (
        "rank",
        "device",
        "tensor",
        "operator",
        "inputs",
        "source",
        "region",
        "size_bytes",
        "born_ns",
        "life_ns",
        "freed",
        "at_peak",
    )
    secret = ("rank", "operator", "inputs", "source", "region")
    blind_to: ClassVar[str] = (
        "When a tensor is last used, and tensors that share a block; memory taken before recording began."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []
        self._tensors = self._left_out = 0
        self._peaks: dict[tuple[str, int], tuple[int, int]] = {}

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        for lives in lifetimes(trace):
            self._peaks[trace.label, lives.device] = lives.peak_bytes, lives.last_ns - lives.first_ns
            self._add(trace, lives)

    def _add(self, trace: Trace, lives: Lifetimes) -> None:
        born, host = lives.born, trace.host
        life = np.where(lives.end_ns == NEVER, lives.last_ns, lives.end_ns) - born.time_ns
        held = born.size_bytes.astype(np.float64) * life
        rows = np.argsort(-held, kind="stable")[:_MOST]
        self._tensors += len(born)
        self._left_out += len(born) - len(rows)
        kinds = (np.flatnonzero(host.kind == kind) for kind in (HostKind.SOURCE, HostKind.REGION))
        source, region = (around(host, kind, lives.operator[rows]) for kind in kinds)
        freed, at_peak = lives.freed, lives.at_peak

        def named(row: int) -> str:
            return trace.names[host.name[row]] if row >= 0 else ""

        for place, row in enumerate(rows.tolist()):
            operator = int(lives.operator[row])
            self._rows.append(
                {
                    "rank": trace.label,
                    "device": lives.device,
                    "tensor": int(born.block[row]),
                    "operator": named(operator),
                    "inputs": trace.shapes[host.shape[operator]] if operator >= 0 else "",
                    "source": named(int(source[place])),
                    "region": named(int(region[place])),
                    "size_bytes": int(born.size_bytes[row]),
                    "born_ns": int(born.time_ns[row] - lives.first_ns),
                    "life_ns": int(life[row]),
                    "freed": bool(freed[row]),
                    "at_peak": bool(at_peak[row]),
                }
            )

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows)
        if not len(frame):
            return Findings(
                self.name, frame, notes=("No file holds allocations: record with memory profiling.",)
            )
        frame = frame.sort_values("size_bytes", ascending=False, kind="stable").reset_index(drop=True)
        figures = {"tensors": float(self._tensors), "shown": float(len(frame))}
        notes = (f"{self._left_out} tensors that held less are left out.",) if self._left_out else ()
        return Findings(self.name, frame, figures, self._advice(), notes)

    def _advice(self) -> tuple[Advice, ...]:
        """One for the first tensor that is a large part of a peak, lives long and is given back."""
        for row in self._rows:
            peak, span = self._peaks[str(row["rank"]), int(str(row["device"]))]
            size, life = int(str(row["size_bytes"])), int(str(row["life_ns"]))
            if row["at_peak"] and row["freed"] and size > _LARGE * peak and life > _LONG * span:
                return (
                    Advice(
                        f"See whether the tensor of {row['operator'] or 'no operator'} can be freed or made "
                        "later, or recomputed.",
                        f"It holds {size / 2**20:.4g} MiB, {size / peak:.0%} of the peak, for "
                        f"{life / span:.0%} of the recording.",
                        0.4,
                    ),
                )
        return ()
