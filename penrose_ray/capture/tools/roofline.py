"""How near each kernel comes to what its device can do, from counters of a kernel profiler."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.kernels import readable
from penrose_ray.capture.tools.peaks import Peak, peak_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.capture.tools.trace import Trace

    Values = NDArray[np.float64]

_SECTOR_BYTES = 32
_DRAM = (("dram__bytes.sum",), ("dram__bytes_read.sum", "dram__bytes_write.sum"))
_L1_MISSES = (
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_miss.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st_lookup_miss.sum",
)
_L2 = ("lts__t_bytes.sum",)
_FP = {
    "fp16": ("hadd", "hmul", "hfma"),
    "fp32": ("fadd", "fmul", "ffma"),
    "fp64": ("dadd", "dmul", "dfma"),
}
_THREADS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
_TENSOR = "sm__ops_path_tensor_"
_NEAR, _LITTLE = 0.6, 0.05
_MOST_ADVICE = 3


class Roofline(Tool):
    """Per kernel: operations, bytes, intensity, and use of DRAM, tensor units and FP64 against the peak.

    Bytes are DRAM's where counted, else 32 for each sector that missed L1: those include what L2 served and
    are an upper bound, marked so. Operations count a fused multiply-add as two.
    """

    name = "roofline"
    columns = (
        "rank",
        "kernel",
        "count",
        "total_ns",
        "flop",
        "fp64_flop",
        "tensor_flop",
        "bytes",
        "bytes_from",
        "l2_bytes",
        "flop_per_byte",
        "flop_per_s",
        "bytes_per_s",
        "dram_use",
        "tensor_use",
        "fp64_use",
        "bound",
    )
    secret = ("rank", "kernel")
    blind_to: ClassVar[str] = (
        "Kernels without counters, peaks of devices it does not know, clocks below those of the data sheet."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []
        self._kernels = self._measured = 0
        self._unknown: set[str] = set()

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        table = trace.device
        by_name = {counter.name: values for counter, values in (trace.counters or {}).items()}
        flop, fp64, tensor = _operations(by_name, len(table))
        size, origin = _bytes(by_name, len(table))
        l2 = _sum([by_name[name] for name in _L2 if name in by_name], len(table))
        known = np.isfinite(flop) | np.isfinite(size)
        self._kernels += len(table)
        self._measured += int(known.sum())
        length = trace.duration_ns
        for device in np.unique(table.device[known]):
            model = trace.models[device] if device < len(trace.models) else ""
            peak = peak_of(model)
            if peak is None:
                self._unknown.add(model or "unknown")
            for name in np.unique(table.name[known & (table.device == device)]):
                mine = known & (table.device == device) & (table.name == name)
                sums = [_total(column[mine]) for column in (length, flop, fp64, tensor, size, l2)]
                row = _row(sums, origin, peak)
                kernel = {
                    "rank": trace.label,
                    "kernel": readable(trace.names[name]),
                    "count": int(mine.sum()),
                }
                self._rows.append({**kernel, **row})

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows, sort_by="total_ns")
        notes = []
        if self._kernels > self._measured:
            notes.append(f"{self._kernels - self._measured} of {self._kernels} activities have no counters.")
        if self._unknown:
            notes.append(f"No peak is known of {', '.join(sorted(self._unknown))}.")
        advice = []
        for row in frame.head(_MOST_ADVICE).to_dict("records"):
            text = _ADVICE.get(str(row["bound"]))
            if text:
                sure = 0.6 if row["bytes_from"] == "dram" else 0.3
                advice.append(Advice(f"{row['kernel']}: {text}", _evidence(row), sure))
        figures = {"measured": float(self._measured), "activities": float(self._kernels)}
        return Findings(self.name, frame, figures, tuple(advice), tuple(notes))


_ADVICE = {
    "memory": "move less: fuse it with its neighbours, or use narrower types.",
    "neither": "it uses little of memory or arithmetic: look at occupancy, latency and launch size.",
}


def _evidence(row: dict[object, object]) -> str:
    return (
        f"It moves {float(str(row['bytes_per_s'])) / 1e9:.4g} GB/s ({row['bytes_from']}) and does "
        f"{float(str(row['flop_per_s'])) / 1e12:.4g} TFLOP/s over {row['count']} launches."
    )


def _operations(by_name: dict[str, Values], rows: int) -> tuple[Values, Values, Values]:
    """All operations, those in FP64 outside tensor units, those in tensor units."""
    parts: dict[str, Values] = {}
    for width, (add, multiply, fused) in _FP.items():
        found = [
            (by_name.get(_THREADS.format(op)), factor) for op, factor in ((add, 1), (multiply, 1), (fused, 2))
        ]
        parts[width] = _sum([values * factor for values, factor in found if values is not None], rows)
    tensor = [
        values for name, values in by_name.items() if name.startswith(_TENSOR) and name.endswith(".sum")
    ]
    units = _sum(tensor, rows)
    return _sum([*parts.values(), units], rows), parts["fp64"], units


def _bytes(by_name: dict[str, Values], rows: int) -> tuple[Values, str]:
    for names in _DRAM:
        if all(name in by_name for name in names):
            return _sum([by_name[name] for name in names], rows), "dram"
    misses = [by_name[name] * _SECTOR_BYTES for name in _L1_MISSES if name in by_name]
    return _sum(misses, rows), "l1 misses" if misses else ""


def _sum(columns: list[Values], rows: int) -> Values:
    """Row sums over what was measured; NaN where nothing was."""
    if not columns:
        return np.full(rows, np.nan)
    stacked = np.column_stack(columns)
    return np.where(np.isfinite(stacked).any(axis=1), np.nansum(stacked, axis=1), np.nan)


def _total(values: Values) -> float:
    return float(np.nansum(values)) if np.isfinite(values).any() else float("nan")


def _row(sums: list[float], origin: str, peak: Peak | None) -> dict[str, object]:
    length, flop, fp64, tensor, size, l2 = sums
    nan = float("nan")
    seconds = length / 1e9 if length > 0 else nan
    use = {
        "dram_use": size / seconds / peak.bytes_per_s if peak else nan,
        "tensor_use": tensor / seconds / peak.tensor_flop_per_s if peak else nan,
        "fp64_use": fp64 / seconds / peak.fp64_flop_per_s if peak else nan,
    }
    return {
        "total_ns": length,
        "flop": flop,
        "fp64_flop": fp64,
        "tensor_flop": tensor,
        "bytes": size,
        "bytes_from": origin,
        "l2_bytes": l2,
        "flop_per_byte": flop / size if size > 0 else nan,
        "flop_per_s": flop / seconds,
        "bytes_per_s": size / seconds,
        **use,
        "bound": _bound(use),
    }


def _bound(use: dict[str, float]) -> str:
    """`memory` or `compute` above 60 % of a peak, `neither` when all known uses are under 5 %, else empty."""
    compute = [value for name, value in use.items() if name != "dram_use" and np.isfinite(value)]
    if use["dram_use"] >= _NEAR and use["dram_use"] >= max(compute, default=0):
        return "memory"
    if max(compute, default=0) >= _NEAR:
        return "compute"
    known = [value for value in use.values() if np.isfinite(value)]
    return "neither" if known and max(known) < _LITTLE else ""
