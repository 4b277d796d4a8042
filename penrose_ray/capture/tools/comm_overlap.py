"""How much of the communication hides behind computation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.intervals import shared, union
from penrose_ray.capture.tools.kernels import COMMUNICATION, COMPUTE, purposes
from penrose_ray.capture.tools.trace import Trace  # noqa: TC001 - named in signatures of a documented class

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

_MPI = re.compile(r"P?MPI_[A-Z]")
_LITTLE = 0.5
_MUCH = 0.1
_SKEW = 1.2


class CommOverlap(Tool):
    """Per rank and device: time of communication kernels, and what of it computation covers.

    Calls of MPI on the host are counted beside it: `mpi_ns` is the time with at least one, `mpi_bubble_ns`
    what of it finds the device idle.
    """

    name = "comm_overlap"
    columns = (
        "rank",
        "device",
        "communication_ns",
        "compute_ns",
        "overlap_ns",
        "exposed_ns",
        "overlap",
        "exposed_of_span",
        "mpi_ns",
        "mpi_bubble_ns",
    )
    blind_to: ClassVar[str] = (
        "Communication that neither runs a kernel nor calls MPI: copy engines, the network card alone."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        timed = trace.device.timed
        table = trace.device.take(timed)
        purpose = purposes(trace)[timed]
        mpi = _mpi_calls(trace)
        for device in np.unique(table.device):
            here = table.device == device
            parts = []
            for kind in (COMMUNICATION, COMPUTE):
                rows = here & (purpose == kind)
                parts.append(union(table.start_ns[rows], table.end_ns[rows]))
            communication, compute = (int((ends - starts).sum()) for starts, ends in parts)
            overlap = shared(*parts)
            busy = union(table.start_ns[here], table.end_ns[here])
            calls = int((mpi[1] - mpi[0]).sum())
            span = int(table.end_ns[here].max() - table.start_ns[here].min())
            self._rows.append(
                {
                    "rank": trace.label,
                    "device": int(device),
                    "communication_ns": communication,
                    "compute_ns": compute,
                    "overlap_ns": overlap,
                    "exposed_ns": communication - overlap,
                    "overlap": overlap / communication if communication else np.nan,
                    "exposed_of_span": (communication - overlap) / span if span else np.nan,
                    "mpi_ns": calls,
                    "mpi_bubble_ns": calls - shared(mpi, busy),
                }
            )

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows)
        talking = frame[frame["communication_ns"] > 0]
        figures = {"mpi_bubble_ns": float(frame["mpi_bubble_ns"].sum()) if len(frame) else 0.0}
        advice = _bubble_advice(frame)
        if not len(talking):
            notes = ("No communication kernel was seen.",)
            return Findings(self.name, frame, figures, tuple(advice), notes)
        figures |= {
            "overlap": float(talking["overlap_ns"].sum() / talking["communication_ns"].sum()),
            "exposed_ns": float(talking["exposed_ns"].sum()),
        }
        worst = talking.iloc[int(talking["exposed_of_span"].fillna(0).to_numpy().argmax())]
        if worst["exposed_of_span"] > _MUCH and worst["overlap"] < _LITTLE:
            advice.append(
                Advice(
                    "Start communication earlier: smaller buckets, prefetch, or a stream of its own.",
                    f"{worst['rank']} communicates {worst['exposed_of_span']:.0%} of its span with nothing "
                    f"computing; {worst['overlap']:.0%} of its communication is hidden.",
                    0.6,
                )
            )
        if len(talking) > 1 and talking["communication_ns"].max() > _SKEW * talking["communication_ns"].min():
            late = talking.iloc[int(talking["communication_ns"].to_numpy().argmin())]
            advice.append(
                Advice(
                    f"Look whether {late['rank']} (device {late['device']}) comes late to collectives.",
                    "Communication lasts from "
                    f"{talking['communication_ns'].min() / 1e6:.3g} to "
                    f"{talking['communication_ns'].max() / 1e6:.3g} ms by rank: the last waits least.",
                    0.4,
                )
            )
        return Findings(self.name, frame, figures, tuple(advice))


def _mpi_calls(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When at least one thread is inside MPI."""
    names = np.array([_MPI.match(name) is not None for name in trace.names] or [False])
    rows = names[trace.host.name]
    return union(trace.host.start_ns[rows], trace.host.end_ns[rows])


def _bubble_advice(frame: pd.DataFrame) -> list[Advice]:
    if not len(frame):
        return []
    worst = frame.iloc[int(frame["mpi_bubble_ns"].to_numpy().argmax())]
    if worst["mpi_bubble_ns"] <= _MUCH * worst["mpi_ns"] or not worst["mpi_bubble_ns"]:
        return []
    return [
        Advice(
            "Give the device work while MPI waits: non-blocking calls, or a device-aware MPI on its streams.",
            f"{worst['rank']} is inside MPI for {worst['mpi_ns'] / 1e6:.3g} ms, and in "
            f"{worst['mpi_bubble_ns'] / worst['mpi_ns']:.0%} of that device {worst['device']} does nothing.",
            0.5,
        )
    ]
