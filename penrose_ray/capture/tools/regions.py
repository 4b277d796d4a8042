"""What ran inside one named region of a program."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.tools.links import around, link
from penrose_ray.capture.tools.nesting import Nesting
from penrose_ray.capture.tools.trace import HostKind
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from penrose_ray.capture.tools.trace import Trace

_SHOWN = 8


def only(traces: Iterable[Trace], region: str) -> Iterator[Trace]:
    """Each rank cut to one region; without that name, all.

    Raises:
        ConfigError: behind the last rank, where none of them has a region of that name.
    """
    found = not region
    for trace in traces:
        found = found or len(_named(trace, region)) > 0
        yield within(trace, region) if region else trace
        del trace  # or it would stay while the next rank is read
    if not found:
        raise ConfigError(
            f"--region: nothing ran inside a region {region!r}.",
            remedy="The warnings say which there are, unless --redact hides them; leave it out for all.",
        )


def within(trace: Trace, region: str) -> Trace:
    """What threads did inside regions of that name, and what they launched there.

    A launch belongs to the regions that are open on its thread; what another thread launches meanwhile, such
    as autograd's, does not. Where no region has the name, nothing is left and a warning names those that are.
    """
    host = trace.host
    chosen = _named(trace, region)
    warnings = trace.warnings if len(chosen) else (*trace.warnings, _absent(trace, region))
    inside = _inside(trace, chosen)
    nesting = Nesting(host.thread[chosen], host.start_ns[chosen], host.end_ns[chosen])
    by_time = trace.marked is None
    return replace(
        trace,
        device=trace.device.take(inside),
        host=host.take(nesting.enclosing(host.thread, host.start_ns) >= 0) if by_time else host,
        memory=trace.memory.take(nesting.enclosing(trace.memory.thread, trace.memory.time_ns) >= 0),
        counters={key: values[inside] for key, values in (trace.counters or {}).items()},
        marked=None if trace.marked is None else trace.marked[inside],
        warnings=warnings,
    )


def _inside(trace: Trace, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which device activities were launched inside one of these regions."""
    if trace.marked is None:
        links = link(trace)
        anchor = np.where(links.call >= 0, links.call, links.operator)
        return np.asarray(around(trace.host, chosen, anchor) >= 0)
    inside = np.zeros(len(trace.marked), np.bool_)
    row = trace.marked.copy()
    while (row >= 0).any():
        inside |= np.isin(row, chosen) & (row >= 0)
        row = np.where(row >= 0, trace.host.external[row] - 1, -1)
    return inside


def _regions(trace: Trace) -> NDArray[np.int64]:
    return np.flatnonzero(trace.host.kind == HostKind.REGION)


def _named(trace: Trace, region: str) -> NDArray[np.int64]:
    """Rows of `host` that are regions of that name."""
    regions = _regions(trace)
    names = np.array([name == region for name in trace.names] or [False])
    chosen: NDArray[np.int64] = regions[names[trace.host.name[regions]]]
    return chosen


def _absent(trace: Trace, region: str) -> str:
    found = list(dict.fromkeys(trace.names[name] for name in trace.host.name[_regions(trace)].tolist()))
    shown = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "")
    return f"There is no region {region!r}; " + (f"there are {shown}." if found else "there is none at all.")
