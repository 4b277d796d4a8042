"""When a device waits, and for what: for the host's launch, for the launch to take effect, for other work."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.intervals import union
from penrose_ray.capture.tools.trace import DeviceTable, HostKind, Trace

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

BACK_TO_BACK_NS = 30
"""Kernels that follow within this time were launched ahead: the gap is the device's own."""
HOST, DEVICE, OTHER, UNKNOWN = "host_wait", "kernel_wait", "other", "unknown"
_SYNC = re.compile(r"Synchronize|StreamWaitEvent", re.IGNORECASE)
_MUCH = 0.2


class TimelineGaps(Tool):
    """Idle time of each stream between its activities by cause, and idle time of the device as a whole.

    A gap is `host_wait` when the next activity was launched after the one before had ended, `kernel_wait`
    when it is at most 30 ns, `other` in between (waits for events, queues); `unknown` where the launch is not
    in the file.
    """

    name = "timeline_gaps"
    columns = ("rank", "device", "queue", "cause", "gaps", "idle_ns", "longest_ns", "share")
    blind_to: ClassVar[str] = "Idle time before the first and behind the last activity of a stream."

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []
        self._idle = self._span = 0
        self._sync_ns = 0
        self._syncs = self._unlinked = 0

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        host = trace.host
        names = np.array([_SYNC.search(name) is not None for name in trace.names] or [False])
        sync = (host.kind == HostKind.CALL) & (names[host.name] if len(host) else False)
        self._syncs += int(sync.sum())
        self._sync_ns += int((host.end_ns[sync] - host.start_ns[sync]).sum())
        table = trace.device.take(trace.device.timed)
        launched = _launch_time(trace, table)
        self._unlinked += int((launched < 0).sum())
        for device in np.unique(table.device):
            mine = table.device == device
            starts, ends = union(table.start_ns[mine], table.end_ns[mine])
            self._span += int(ends[-1] - starts[0])
            self._idle += int(ends[-1] - starts[0] - (ends - starts).sum())
        for queue in np.unique(table.queue):
            self._queue(trace.label, table.take(table.queue == queue), launched[table.queue == queue])

    def _queue(self, rank: str, table: DeviceTable, launched: NDArray[np.int64]) -> None:
        order = np.argsort(table.start_ns, kind="stable")
        start, end, launched = table.start_ns[order], table.end_ns[order], launched[order]
        before = end[:-1]
        idle = start[1:] - before
        host = (launched[1:] > before) & (idle > 0)
        rest = np.where(launched[1:] < 0, UNKNOWN, OTHER)
        cause = np.where(host, HOST, np.where(idle <= BACK_TO_BACK_NS, DEVICE, rest))
        whole = int(idle[idle > 0].sum())
        for one in (HOST, DEVICE, OTHER, UNKNOWN):
            chosen = idle[(cause == one) & (idle > 0)]
            self._rows.append(
                {
                    "rank": rank,
                    "device": int(table.device[0]),
                    "queue": int(table.queue[0]),
                    "cause": one,
                    "gaps": len(chosen),
                    "idle_ns": int(chosen.sum()),
                    "longest_ns": int(chosen.max()) if len(chosen) else 0,
                    "share": chosen.sum() / whole if whole else np.nan,
                }
            )

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows)
        idle = self._idle / self._span if self._span else np.nan
        figures = {
            "device_idle_share": idle,
            "device_idle_ns": float(self._idle),
            "span_ns": float(self._span),
            "synchronisations": float(self._syncs),
            "synchronisation_ns": float(self._sync_ns),
        }
        notes = []
        if self._unlinked:
            notes.append(
                f"{self._unlinked} activities have no launch in the file: the cause of their gaps is unknown."
            )
        return Findings(self.name, frame, figures, tuple(self._advice(frame, idle)), tuple(notes))

    def _advice(self, frame: pd.DataFrame, idle: float) -> list[Advice]:
        by_cause = frame.groupby("cause")["idle_ns"].sum()
        known = int(by_cause.drop(UNKNOWN, errors="ignore").sum())
        if not known or not idle > _MUCH:
            return []
        share = float(by_cause.get(HOST, 0)) / known
        sure = known / int(by_cause.sum())
        if share > 1 / 2:
            return [
                Advice(
                    "The host is too slow: launch a captured graph, compile the model, or feed more at once.",
                    f"The devices idle {idle:.0%} of the time; {share:.0%} of the streams' gaps of known "
                    f"cause end with a launch that came late. {self._syncs} synchronising calls took "
                    f"{self._sync_ns / 1e6:.3g} ms.",
                    round(0.7 * sure, 2),
                )
            ]
        return [
            Advice(
                "Look for waits between streams and for copies that block: launches were on time.",
                f"The devices idle {idle:.0%} of the time; only {share:.0%} of the gaps wait for the host.",
                round(0.4 * sure, 2),
            )
        ]


def _launch_time(trace: Trace, table: DeviceTable) -> NDArray[np.int64]:
    """When the host began each activity's launch, -1 where the file does not say."""
    calls = (trace.host.kind == HostKind.CALL) & (trace.host.correlation > 0)
    if not calls.any():
        return np.full(len(table), -1, dtype=np.int64)
    correlation, first = np.unique(trace.host.correlation[calls], return_index=True)
    moment = trace.host.start_ns[calls][first]
    place = np.minimum(np.searchsorted(correlation, table.correlation), len(correlation) - 1)
    return np.where(correlation[place] == table.correlation, moment[place], -1)
