"""How many streams of a device work at once."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.intervals import covered, depth, union
from penrose_ray.capture.tools.trace import Trace  # noqa: TC001 - named in signatures of a documented class

_LITTLE = 0.05
_BUSY = 0.05


class StreamOverlap(Tool):
    """Per rank and device: for how long exactly d streams were busy."""

    name = "stream_overlap"
    columns = ("rank", "device", "streams", "busy_streams", "time_ns", "share_of_busy")
    blind_to: ClassVar[str] = (
        "Whether streams that overlap share a multiprocessor; where a profiler numbers streams anew for "
        "every launch, each counts."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []
        self._serial: list[tuple[str, int, int, float]] = []

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        table = trace.device.take(trace.device.timed)
        for device in np.unique(table.device):
            mine = table.take(table.device == device)
            parts = []
            for queue in np.unique(mine.queue):
                here = mine.queue == queue
                parts.append(union(mine.start_ns[here], mine.end_ns[here]))
            starts, ends = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
            busy = covered(starts, ends)
            levels, times = depth(starts, ends)
            for level, time_ns in zip(levels.tolist(), times.tolist(), strict=True):
                self._rows.append(
                    {
                        "rank": trace.label,
                        "device": int(device),
                        "streams": len(parts),
                        "busy_streams": level,
                        "time_ns": time_ns,
                        "share_of_busy": time_ns / busy,
                    }
                )
            used = sum(int((end - start).sum()) > _BUSY * busy for start, end in parts)
            together = int(times[levels > 1].sum()) / busy if busy else 0.0
            if used > 1 and together < _LITTLE:
                self._serial.append((trace.label, int(device), used, together))

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows)
        together = frame[frame["busy_streams"] > 1]["time_ns"].sum()
        busy = frame["time_ns"].sum()
        advice = tuple(
            Advice(
                "Look for events or the default stream that make the streams wait for one another.",
                f"{rank}, device {device}: {used} streams work, at once for {share:.1%} of the busy time.",
                0.4,
            )
            for rank, device, used, share in self._serial
        )
        figures = {"together_share": float(together / busy) if busy else np.nan, "busy_ns": float(busy)}
        return Findings(self.name, frame, figures, advice)
