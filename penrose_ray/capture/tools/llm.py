"""Phases of a language model's server: prompt (prefill) and generation (decode), cache and expert kernels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from penrose_ray.capture.tools.base import Advice, Findings, Tool
from penrose_ray.capture.tools.kernels import COMMUNICATION, is_product, purposes
from penrose_ray.capture.tools.links import link

if TYPE_CHECKING:
    from penrose_ray.capture.tools.trace import Trace

PREFILL, DECODE, MIXED, UNKNOWN = "prefill", "decode", "mixed", "unknown"
_PARTS = (
    (
        "cache",
        re.compile(r"reshape_and_cache|kv_?cache|concat_and_cache|copy_blocks|swap_blocks", re.IGNORECASE),
    ),
    (
        "experts",
        re.compile(r"moe|expert|topk_forward|routing|matmul_ogs|bitmatrix|matmul_scatter", re.IGNORECASE),
    ),
    ("attention", re.compile(r"attention|attn|fmha|flash|\bmla_|paged", re.IGNORECASE)),
    ("norm", re.compile(r"rms_?norm|layer_?norm", re.IGNORECASE)),
    ("rotary", re.compile(r"rotary|rope", re.IGNORECASE)),
    ("sampling", re.compile(r"sampl|argmax|softmax|topk|top_k", re.IGNORECASE)),
)
_DECODE = re.compile(
    r"paged_attention|decode|splitkv|split_kv|flash_fwd_splitkv|_mqa_|gqa_decode", re.IGNORECASE
)
_PREFILL = re.compile(
    r"prefill|context_attention|flash_fwd_kernel|flash_fwd_sm|fmha_fwd|attn_fwd", re.IGNORECASE
)
_STEP = re.compile(r"execute_(?:\d+_)?context_(\d+)\D.*?generation_(\d+)", re.IGNORECASE)
_HEAVY_CACHE, _HEAVY_EXPERTS = 0.1, 0.3


class LanguageModel(Tool):
    """Device time by phase and part of the model.

    A phase is taken from the server's own regions where they name numbers of prompts and generations (both:
    mixed), else from the attention kernels' names: prefill or decode until the next one says otherwise.
    """

    name = "llm"
    columns = ("rank", "phase", "part", "count", "total_ns", "share")
    blind_to: ClassVar[str] = (
        "Phases when one attention kernel serves both and no region tells; how many tokens each expert got."
    )

    def begin(self) -> None:
        """Forget an earlier run."""
        self._rows: list[dict[str, object]] = []
        self._guessed = self._named = 0

    def visit(self, trace: Trace) -> None:
        """Add one rank."""
        if not len(trace.device):
            return
        parts = _parts(trace)
        if not np.isin(parts, ["attention", "cache", "experts"]).any():
            return
        phases = self._phases(trace)
        length = np.nan_to_num(trace.duration_ns)
        whole = length.sum()
        for phase in np.unique(phases):
            for part in np.unique(parts[phases == phase]):
                mine = (phases == phase) & (parts == part)
                total = float(length[mine].sum())
                self._rows.append(
                    {
                        "rank": trace.label,
                        "phase": str(phase),
                        "part": str(part),
                        "count": int(mine.sum()),
                        "total_ns": total,
                        "share": total / whole if whole else np.nan,
                    }
                )

    def _phases(self, trace: Trace) -> np.ndarray:
        table = trace.device
        region = link(trace).region
        by_name = {row: _phase_of_region(name) for row, name in enumerate(trace.names)}
        told = np.array(
            [by_name[trace.host.name[row]] if row >= 0 else "" for row in region.tolist()], dtype="U7"
        )
        words = [DECODE if _DECODE.search(n) else PREFILL if _PREFILL.search(n) else "" for n in trace.names]
        hint = np.array(words, dtype="U7")[table.name]
        order = np.argsort(table.start_ns, kind="stable")
        marks = np.where(hint[order] != "", np.arange(len(order)), -1)
        last = np.maximum.accumulate(marks)
        carried = np.full(len(order), UNKNOWN, dtype="U7")
        carried[order] = np.where(last >= 0, hint[order][np.maximum(last, 0)], UNKNOWN)
        self._named += int((told != "").sum())
        self._guessed += int(((told == "") & (carried != UNKNOWN)).sum())
        return np.where(told != "", told, carried)

    def finish(self) -> Findings:
        """The table, and what to do."""
        frame = self.frame(self._rows, sort_by="total_ns")
        if not len(frame):
            return Findings(self.name, frame, notes=("No kernel of a language model was recognised.",))
        whole = frame["total_ns"].sum()
        by_part = (frame.groupby("part")["total_ns"].sum() / whole).to_dict() if whole else {}
        advice = []
        if by_part.get("cache", 0) > _HEAVY_CACHE:
            advice.append(
                Advice(
                    "Write the cache within the attention or rotary kernel, or use larger cache blocks.",
                    f"Kernels that only move the cache take {by_part['cache']:.0%} of the device time.",
                    0.4,
                )
            )
        if by_part.get("experts", 0) > _HEAVY_EXPERTS:
            advice.append(
                Advice(
                    "Check that tokens spread evenly over experts, and that routing kernels are fused.",
                    f"Kernels of experts and their routing take {by_part['experts']:.0%} of the device time.",
                    0.3,
                )
            )
        notes = []
        if self._guessed:
            notes.append(f"The phase of {self._guessed} activities is guessed from attention kernels' names.")
        figures = {f"{part}_share": float(share) for part, share in by_part.items()}
        return Findings(self.name, frame, figures, tuple(advice), tuple(notes))


def _parts(trace: Trace) -> np.ndarray:
    names = trace.names
    found = [next((part for part, words in _PARTS if words.search(n)), "") for n in names]
    found = [part or ("products" if is_product(n) else "other") for part, n in zip(found, names, strict=True)]
    parts = np.array(found, dtype="U13")[trace.device.name]
    return np.where(purposes(trace) == COMMUNICATION, COMMUNICATION, parts)


def _phase_of_region(name: str) -> str:
    match = _STEP.search(name)
    if match is None:
        return ""
    prompts, generations = (int(group) > 0 for group in match.groups())
    if prompts and generations:
        return MIXED
    return PREFILL if prompts else DECODE if generations else ""
