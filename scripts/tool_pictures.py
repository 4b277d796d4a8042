"""Draw the pictures of docs/tools.md from real runs: `python scripts/tool_pictures.py`.

The recordings are found through PENROSE_TRACES. Two tools need counters or migrations that no public
recording holds; theirs are made here, and the pictures say so.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.tools.reading import read_traces
from penrose_ray.capture.tools.registry import load
from penrose_ray.capture.tools.trace import DeviceTable, HostTable, MemoryTable, Trace
from penrose_ray.histogram import Counter

mpl.use("svg")
import matplotlib.pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd
    from matplotlib.axes import Axes

OUT = Path(__file__).parents[1] / "docs" / "pictures"
HTA, PARAM = "HolisticTraceAnalysis__", "param__dlrm_kineto.tar.gz"
INDEX = HTA + "df_index_resolver__df_index_resolver.json.gz"
QWEN = "TraceLens__mi300__Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz"
VLLM = "TraceLens__inference__vllm_prefilldecode_piecewise__graph_execution.json.gz"
WAVE = "Wave__*llama_layer8_embd4096_ffn16384_head32.csv.gz"
GREEN, GREY = "#5b7f2b", "#b9b9b9"
_LABEL, _ROWS = 46, 10
_NOISE = re.compile(r"\bvoid |\bat::native::|\(anonymous namespace\)::|dlrm_kineto/|_step_.*json")


@dataclass(frozen=True)
class Picture:
    """Which file a tool looks at, and how its table is drawn."""

    file: str
    """A pattern in the folder `traces`; empty for a made trace."""
    of: str
    """What ran, for the title."""
    draw: Callable[[Axes, pd.DataFrame], None]


def bars(
    measure: str, *labels: str, scale: float = 1e6, unit: str = "ms"
) -> Callable[[Axes, pd.DataFrame], None]:
    """The rows with most of `measure`, as bars."""

    def draw(axes: Axes, frame: pd.DataFrame) -> None:
        shown = frame[frame[measure] > 0].nlargest(_ROWS, measure)[::-1]
        names = [
            " | ".join(str(row[label]) for label in labels if str(row[label])) for _, row in shown.iterrows()
        ]
        axes.barh(range(len(shown)), shown[measure] / scale, color=GREEN)
        axes.set_yticks(range(len(shown)), [_short(name) for name in names])
        axes.set_xlabel(f"{measure.removesuffix('_ns').removesuffix('_bytes')} ({unit})" if unit else measure)

    return draw


def stacked(axes: Axes, frame: pd.DataFrame) -> None:
    """Communication by rank: hidden behind computation, and exposed."""
    names = [_short(f"{row['rank']} device {row['device']}") for _, row in frame.iterrows()]
    axes.barh(range(len(frame)), frame["overlap_ns"] / 1e6, color=GREEN, label="hidden")
    axes.barh(
        range(len(frame)),
        frame["exposed_ns"] / 1e6,
        left=frame["overlap_ns"] / 1e6,
        color=GREY,
        label="exposed",
    )
    axes.set_yticks(range(len(frame)), names)
    axes.set_xlabel("communication (ms)")
    axes.legend(frameon=False)


def roof(axes: Axes, frame: pd.DataFrame) -> None:
    """Operations a second against operations a byte, the area of a dot is the kernel's time."""
    known = frame[(frame["flop_per_byte"] > 0) & (frame["flop_per_s"] > 0)]
    size = 4 + 300 * known["total_ns"] / known["total_ns"].max()
    axes.scatter(known["flop_per_byte"], known["flop_per_s"] / 1e12, s=size, color=GREEN, alpha=0.6)
    axes.set(xscale="log", yscale="log", xlabel="operations a byte", ylabel="Tera-operations a second")


def lives(axes: Axes, frame: pd.DataFrame) -> None:
    """A bar a tensor from its allocation to its release."""
    held = (frame["size_bytes"] * frame["life_ns"]).nlargest(40).index
    shown = frame.loc[held].sort_values("born_ns").reset_index(drop=True)
    for row in shown.itertuples():
        axes.barh(row.Index, row.life_ns / 1e6, left=row.born_ns / 1e6, color=GREEN if row.at_peak else GREY)
    axes.set_yticks(range(len(shown)), [""] * len(shown))
    axes.set(
        xlabel="ms since the first allocation (green: alive at the peak)", ylabel="the 40 that hold most"
    )


def heat(axes: Axes, frame: pd.DataFrame) -> None:
    """Moved bytes in the cells of the run."""
    axes.imshow(frame["moved_bytes"].to_numpy()[None, :], aspect="auto", cmap="Greens")
    axes.set_yticks([])
    axes.set_xlabel("cell of the run; dark: more bytes migrate")


PICTURES = {
    "kernel_frequency": Picture(INDEX, "HTA's df_index_resolver, V100", bars("total_ns", "kernel")),
    "operator_map": Picture(INDEX, "HTA's df_index_resolver, V100", bars("total_ns", "operator", "kernel")),
    "timeline_gaps": Picture(INDEX, "HTA's df_index_resolver, V100", bars("idle_ns", "queue", "cause")),
    "comm_overlap": Picture(PARAM, "eight ranks of DLRM on V100", stacked),
    "stream_overlap": Picture(
        HTA + "nccl_parser_config__nccl_data.json.gz", "NCCL on A100", bars("time_ns", "busy_streams")
    ),
    "gemm_advice": Picture(
        QWEN, "Qwen 1.5 on MI300", bars("median_ns", "operator", "kernel", scale=1e3, unit="us")
    ),
    "fusion_candidates": Picture(QWEN, "Qwen 1.5 on MI300", bars("could_save_ns", "chain")),
    "roofline": Picture(WAVE, "one step of Llama", roof),
    "access_pattern": Picture(
        "", "made counters", bars("stride_words", "kernel", "access", scale=1, unit="")
    ),
    "memory_timeline": Picture(
        QWEN, "Qwen 1.5 on MI300", bars("at_peak_bytes", "operator", scale=2**20, unit="MiB")
    ),
    "tensor_timeline": Picture(QWEN, "Qwen 1.5 on MI300", lives),
    "llm": Picture(VLLM, "vLLM, prefill and decode", bars("total_ns", "phase", "part")),
    "uvm_faults": Picture("", "a made run", heat),
    "atomics": Picture(
        HTA + "trace_filter__sampled_rank-0.json.gz",
        "a recommendation model",
        bars("total_ns", "kernel", "evidence"),
    ),
}


def made(tool: str) -> Trace:
    """Kernels with strides of 1 to 32 words; or migrations at the beginning of each of three passes."""
    if tool == "access_pattern":
        requests = np.full(6, 1000.0)
        sectors = requests * np.minimum(4 * 2 ** np.arange(6), 32)
        name = "l1tex__t_{}_pipe_lsu_mem_global_op_ld.sum"
        counters = {"sectors": sectors, "requests": requests}
        names = tuple(f"stride_{2**power}" for power in range(6))
        measured = {Counter(name.format(key), "", "ncu", "nvidia"): each for key, each in counters.items()}
        return _trace(
            names, np.arange(6), np.arange(6) * 100, np.full(6, 90), measured, kind=KernelKind.KERNEL
        )
    start = np.arange(60) * 1000
    moves = np.isin(np.arange(60) % 20, range(5))
    sizes = np.where(moves, 1 << 20, 0) >> (np.arange(60) % 20 % 5)
    return _trace(
        ("sweep", "Unified Memory Memcpy HtoD"), moves.astype(np.int64), start, np.full(60, 900), {},
        kind=np.where(moves, KernelKind.COPY, KernelKind.KERNEL), size_bytes=sizes,
    )  # fmt: skip


def _trace(
    names: tuple[str, ...],
    name: np.ndarray,
    start: np.ndarray,
    length: np.ndarray,
    counters: Mapping[Counter, np.ndarray],
    **columns: object,
) -> Trace:
    device = DeviceTable.of(len(name), name=name, start_ns=start + 1, end_ns=start + 1 + length, **columns)
    return Trace(
        "made", "made", names, ("made",), device, HostTable.of(0), MemoryTable.of(0), counters=counters
    )


def _short(name: str) -> str:
    name = _NOISE.sub("", name)
    return name if len(name) <= _LABEL else name[: _LABEL - 1] + "\u2026"


def draw(tool: str, picture: Picture, folder: Path) -> Path:
    """One picture; SystemExit when its recording is missing or holds nothing for the tool."""
    files = sorted(folder.glob(picture.file))[:1] if picture.file else []
    if picture.file and not files:
        raise SystemExit(f"{folder} holds no {picture.file}")
    findings = load([tool])[0].run(read_traces(files) if files else [made(tool)])
    if not len(findings.frame):
        raise SystemExit(f"{tool} finds nothing in {picture.file}")
    figure, axes = plt.subplots(figsize=(8, 3.2), layout="constrained")
    picture.draw(axes, findings.frame)
    axes.set_title(f"{tool}: {picture.of}", fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    path = OUT / f"{tool}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def main(names: Sequence[str]) -> None:
    """Draw these tools' pictures, all without a name."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "penrose", "font.size": 8})
    folder = Path(os.environ["PENROSE_TRACES"]) / "traces"
    OUT.mkdir(exist_ok=True)
    for name in names or PICTURES:
        path = draw(name, PICTURES[name], folder)
        print(f"{path} {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
