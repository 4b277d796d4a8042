"""Whether warps read and write memory in whole sectors, and shared memory without conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.kernels import readable

if TYPE_CHECKING:
    from penrose_ray.capture.tools.trace import Trace

_SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_{}.sum"
_REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_{}.sum"
_CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{}.sum"
_SHARED = "smsp__sass_inst_executed_op_shared_{}.sum"
_WARP, _SECTOR_BYTES = 32, 32
_WORD_BYTES = 4
_BEST_SECTORS = _WARP * _WORD_BYTES / _SECTOR_BYTES
"""4: a warp that reads 32 neighbouring words of 4 bytes."""
_WASTEFUL = 2.0
_CONFLICTED = 0.5


class AccessPattern(Tool):
    """Per kernel: sectors a request (4 is best for words of 4 bytes, 32 the worst) and bank conflicts.

    A warp whose threads are s words apart touches min(4 s, 32) sectors: sectors / 4 is the stride that
    fits. Conflicts of n ways replay an access n - 1 times. Rows of shared memory whose length is a multiple
    of 32 words put a column into one bank: one word of padding a row spreads it over all.
    """

    name = "access_pattern"
    columns = (
        "rank",
        "kernel",
        "access",
        "count",
        "requests",
        "sectors_per_request",
        "stride_words",
        "conflicts_per_access",
        "padding_words",
    )
    secret = ("rank", "kernel")
    blind_to: ClassVar[str] = (
        "Addresses: a stride is inferred from averages, and a random pattern looks like a large stride."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        by_name = {counter.name: values for counter, values in (trace.counters or {}).items()}
        for access in ("ld", "st"):
            for kind, top, bottom in (
                ("global", _SECTORS.format(access), _REQUESTS.format(access)),
                ("shared", _CONFLICTS.format(access), _SHARED.format(access)),
            ):
                if top in by_name and bottom in by_name:
                    self._pairs(trace, f"{kind}_{access}", by_name[top], by_name[bottom])

    def _pairs(self, trace: Trace, access: str, top: np.ndarray, bottom: np.ndarray) -> None:
        known = np.isfinite(top) & (np.nan_to_num(bottom) > 0)
        for name in np.unique(trace.device.name[known]):
            mine = known & (trace.device.name == name)
            ratio = float(top[mine].sum() / bottom[mine].sum())
            is_global = access.startswith("global")
            self._rows.append(
                {
                    "rank": trace.label,
                    "kernel": readable(trace.names[name]),
                    "access": access,
                    "count": int(mine.sum()),
                    "requests": float(bottom[mine].sum()),
                    "sectors_per_request": ratio if is_global else np.nan,
                    "stride_words": max(ratio / _BEST_SECTORS, 1.0) if is_global else np.nan,
                    "conflicts_per_access": np.nan if is_global else ratio,
                    "padding_words": np.nan if is_global else float(ratio > _CONFLICTED),
                }
            )

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows, sort_by="requests")
        advice = []
        for row in frame.to_dict("records"):
            if row["stride_words"] >= _WASTEFUL:
                advice.append(
                    Advice(
                        f"Let neighbouring threads of {row['kernel']} touch neighbouring words.",
                        f"{row['access']}: {row['sectors_per_request']:.3g} sectors a request, 4 would do: "
                        f"as threads {row['stride_words']:.3g} words apart.",
                        0.5,
                    )
                )
            elif row["conflicts_per_access"] > _CONFLICTED:
                advice.append(
                    Advice(
                        f"Pad rows of shared memory in {row['kernel']} by one word.",
                        f"{row['access']}: {row['conflicts_per_access']:.3g} conflicts an access.",
                        0.5,
                    )
                )
        notes = () if len(frame) else ("No file holds the counters of requests, sectors or conflicts.",)
        return Findings(self.name, frame, {"kernels": float(len(frame))}, tuple(advice), notes)
