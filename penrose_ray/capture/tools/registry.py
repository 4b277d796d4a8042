"""Tools by name: those of this package and those that other packages add.

A package adds one with an entry point of the group `penrose.tools`, whose name is the tool's.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from penrose_ray.capture.tools.base import Tool
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

GROUP = "penrose.tools"
_HERE = "penrose_ray.capture.tools"
BUILT_IN = {
    "kernel_frequency": "KernelFrequency",
    "operator_map": "OperatorMap",
    "timeline_gaps": "TimelineGaps",
    "comm_overlap": "CommOverlap",
    "stream_overlap": "StreamOverlap",
    "gemm_advice": "GemmAdvice",
    "fusion_candidates": "FusionCandidates",
    "roofline": "Roofline",
    "access_pattern": "AccessPattern",
    "memory_timeline": "MemoryTimeline",
    "tensor_timeline": "TensorTimeline",
    "atomics": "Atomics",
    "llm": "LanguageModel",
    "uvm_faults": "UvmFaults",
}


def available() -> dict[str, EntryPoint]:
    """Every tool's entry point, in the order of names; a built-in one goes before a foreign namesake."""
    found = {point.name: point for point in entry_points(group=GROUP)}
    for name, kind in BUILT_IN.items():
        found[name] = EntryPoint(name, f"{_HERE}.{name}:{kind}", GROUP)
    return dict(sorted(found.items()))


def load(names: Sequence[str]) -> list[Tool]:
    """New tools of these names, in their order.

    Raises:
        ConfigError: no such tool, or what its package names is none.
    """
    known = available()
    tools = []
    for name in dict.fromkeys(names):
        if name not in known:
            raise ConfigError(f"There is no tool {name!r}.", remedy=f"Use some of {', '.join(known)}.")
        try:
            kind = known[name].load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(
                f"The tool {name!r} cannot be loaded: {error}.", remedy="Install its package again."
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, Tool)):
            raise ConfigError(f"{known[name].value} is no tool.", remedy="Derive it from Tool.")
        tools.append(kind())
    return tools
