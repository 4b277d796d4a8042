"""Which operator of the framework, and which source line, launches which kernels."""

from __future__ import annotations

from collections import defaultdict
from typing import ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Findings, Tool
from penrose_ray.capture.tools.kernels import readable
from penrose_ray.capture.tools.links import BY_ID, NOT, link
from penrose_ray.capture.tools.trace import Trace  # noqa: TC001 - named in signatures of a documented class

_BACKWARD = ("autograd::engine::", "Backward")


class OperatorMap(Tool):
    """Device activities by operator, kernel, source line and region; backward work names its forward."""

    name = "operator_map"
    columns = (
        "operator",
        "top_operator",
        "forward_of",
        "backward",
        "kernel",
        "source",
        "region",
        "linked_by",
        "count",
        "total_ns",
    )
    secret = ("operator", "top_operator", "forward_of", "kernel", "source", "region")
    blind_to: ClassVar[str] = (
        "Operators whose host side was not recorded, such as replayed graphs; a source line needs a trace "
        "recorded with stacks."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._groups: defaultdict[tuple[object, ...], list[float]] = defaultdict(lambda: [0, 0.0])
        self._kernels = self._linked = self._by_id = 0

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        links = link(trace)
        self._kernels += len(trace.device)
        self._linked += int((links.how != NOT).sum())
        self._by_id += int((links.how == BY_ID).sum())
        names = trace.host.name

        def named(rows: np.ndarray) -> np.ndarray:
            return np.where(rows >= 0, names[rows], -1) if len(names) else np.full(len(rows), -1)

        parts = (links.operator, links.top, links.forward, links.source, links.region)
        keys = np.column_stack([*(named(rows) for rows in parts), trace.device.name, links.how == BY_ID])
        if not len(keys):
            return
        groups, place = np.unique(keys, axis=0, return_inverse=True)
        place = place.ravel()
        count = np.bincount(place)
        total = np.bincount(place, weights=np.nan_to_num(trace.duration_ns))
        for row, group in enumerate(groups.tolist()):
            operator, top, forward, source, region = (
                trace.names[one] if one >= 0 else "" for one in group[:5]
            )
            how = (BY_ID if group[6] else "enclosing operator") if operator else NOT
            backward = any(word in name for word in _BACKWARD for name in (operator, top))
            kernel = readable(trace.names[group[5]])
            entry = self._groups[operator, top, forward, backward, kernel, source, region, how]
            entry[0] += count[row]
            entry[1] += total[row]

    def finish(self) -> Findings:
        """The table, and what to do."""
        rows = [
            dict(zip(self.columns, (*key, int(count), total), strict=True))
            for key, (count, total) in self._groups.items()
        ]
        share = self._linked / self._kernels if self._kernels else np.nan
        notes = []
        if self._kernels:
            notes.append(f"{self._linked} of {self._kernels} device activities are linked ({share:.1%}).")
        figures = {
            "activities": float(self._kernels),
            "linked": float(self._linked),
            "linked_by_external_id": float(self._by_id),
            "linked_share": share,
        }
        return Findings(self.name, self.frame(rows, sort_by="total_ns"), figures, notes=tuple(notes))
