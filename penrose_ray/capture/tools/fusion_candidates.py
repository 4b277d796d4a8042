"""Short chains of small kernels that come again and again: what fusing them could save."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.kernels import COMPUTE, is_product, purposes, readable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.capture.tools.trace import DeviceTable, Trace

_LENGTHS = (2, 3, 4, 5)
_SMALL_NS = 20_000
_FEWEST = 10
_MOST_ROWS = 50
_LONGEST_GAP_NS = 50_000


class FusionCandidates(Tool):
    """Chains of 2 to 5 kernels of at most 20 us each, back to back on one stream, seen ten times or more.

    The saving is the gaps inside the chain plus, for kernels that only move data, at most all but the longest
    kernel's time; `could_save_ns` counts the gaps alone, `upper_bound_ns` both. Occurrences of a chain do not
    overlap one another; those of different chains may.
    """

    name = "fusion_candidates"
    columns = ("chain", "length", "count", "time_ns", "could_save_ns", "upper_bound_ns")
    secret = ("chain",)
    blind_to: ClassVar[str] = (
        "Whether the kernels depend on one another: no trace says which memory they touch."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._chains: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0])

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        table = trace.device
        if not len(table):
            return
        fusible = np.array([not is_product(name) for name in trace.names])
        small = table.end_ns - table.start_ns <= _SMALL_NS
        usable = table.timed & (table.kind == KernelKind.KERNEL) & fusible[table.name]
        usable &= small & (purposes(trace) == COMPUTE)
        for queue in np.unique(table.queue):
            here = (table.queue == queue) & table.timed
            order = np.flatnonzero(here)[np.argsort(table.start_ns[here], kind="stable")]
            self._queue(trace, table.take(order), usable[order])

    def _queue(self, trace: Trace, table: DeviceTable, usable: NDArray[np.bool_]) -> None:
        gaps = table.start_ns[1:] - table.end_ns[:-1]
        joined = usable[1:] & usable[:-1] & (gaps >= 0) & (gaps <= _LONGEST_GAP_NS) & (table.gap[1:] == 0)
        length = table.end_ns - table.start_ns
        for size in _LENGTHS:
            if len(table) < size:
                break
            windows = np.lib.stride_tricks.sliding_window_view(joined, size - 1).all(axis=1)
            starts = np.flatnonzero(windows)
            if not len(starts):
                continue
            chains = np.lib.stride_tricks.sliding_window_view(table.name, size)[starts]
            unique, place = np.unique(chains, axis=0, return_inverse=True)
            place = place.ravel()
            for number in np.flatnonzero(np.bincount(place) >= _FEWEST):
                at = _apart(starts[place == number], size)
                times = length[at[:, None] + np.arange(size)]
                inner = gaps[at[:, None] + np.arange(size - 1)]
                entry = self._chains[tuple(readable(trace.names[name]) for name in unique[number])]
                entry[0] += len(at)
                entry[1] += int(times.sum())
                entry[2] += int(inner.sum())
                entry[3] += int(inner.sum() + times.sum() - times.max(axis=1).sum())

    def finish(self) -> Findings:
        """The table, and what to do."""
        rows = [
            dict(zip(self.columns, (" -> ".join(chain), len(chain), *values), strict=True))
            for chain, values in self._chains.items()
            if values[0] >= _FEWEST
        ]
        frame = self.frame(rows, sort_by="could_save_ns").head(_MOST_ROWS)
        if not len(frame):
            return Findings(self.name, frame)
        top = frame.iloc[0]
        advice = Advice(
            f"Fuse {top['chain']} (a compiler such as torch.compile does it, or one kernel by hand).",
            f"The chain comes {top['count']} times; its gaps alone take {top['could_save_ns'] / 1e6:.3g} ms, "
            f"at most {top['upper_bound_ns'] / 1e6:.3g} ms could go.",
            0.4,
        )
        return Findings(self.name, frame, {"best_could_save_ns": float(top["could_save_ns"])}, (advice,))


def _apart(starts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Occurrences from the first on that do not overlap the one taken before."""
    taken = []
    free = -1
    for start in starts.tolist():
        if start >= free:
            taken.append(start)
            free = start + size
    return np.array(taken, dtype=np.int64)
