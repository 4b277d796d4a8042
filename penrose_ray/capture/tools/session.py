"""Several tools over the same files, each file read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penrose_ray.capture.tools.base import Findings, Tool
    from penrose_ray.capture.tools.trace import Trace


def analyse(traces: Iterable[Trace], tools: Sequence[Tool]) -> list[Findings]:
    """Show every rank to every tool; a rank is dropped when all have seen it."""
    for tool in tools:
        tool.begin()
    for trace in traces:
        for tool in tools:
            tool.visit(trace)
        del trace
    return [tool.finish() for tool in tools]
