"""From device activities to the operators, source lines and regions that launched them.

In this order: the operator with the activity's external id; the launching call found by correlation and the
innermost operator around it on the same thread. Writers before 2023 repeat the correlation id as external id:
that names no operator and is not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.tools.nesting import Nesting
from penrose_ray.capture.tools.trace import HostKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.capture.tools.trace import HostTable, Trace

    Rows = NDArray[np.int64]

BY_ID, BY_CALL, NOT = "external id", "enclosing operator", ""
ENGINE = "autograd::engine::evaluate_function"


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """For each device activity, a row of `Trace.host`; -1 where there is none."""

    call: Rows
    operator: Rows
    """The innermost operator."""
    top: Rows
    """The outermost one around it."""
    forward: Rows
    """For a backward operator, the forward operator whose gradient it computes."""
    source: Rows
    region: Rows
    how: NDArray[np.str_]


def link(trace: Trace) -> Links:
    """Find everything at once."""
    host, device = trace.host, trace.device
    kinds = {kind: np.flatnonzero(host.kind == kind) for kind in HostKind}
    operators = kinds[HostKind.OPERATOR]
    calls = kinds[HostKind.CALL]
    call = _match(device.correlation, host.correlation[calls], calls)
    external = np.where(device.external == device.correlation, 0, device.external)
    by_id = _match(external, host.external[operators], operators)
    nesting = _nesting(host, operators)
    by_call = _around(host, nesting, operators, call)
    operator = np.where(by_id >= 0, by_id, by_call)
    how = np.where(by_id >= 0, BY_ID, np.where(by_call >= 0, BY_CALL, NOT))
    top = _outermost(nesting, operators, operator)
    anchor = np.where(call >= 0, call, operator)
    return Links(
        call=call,
        operator=operator,
        top=top,
        forward=_forward(trace, operators, nesting, operator),
        source=around(host, kinds[HostKind.SOURCE], anchor),
        region=trace.marked if trace.marked is not None else around(host, kinds[HostKind.REGION], anchor),
        how=how,
    )


def _match(wanted: Rows, keys: Rows, rows: Rows) -> Rows:
    """For each wanted number the first row with that key; 0 matches nothing."""
    keep = keys > 0
    keys, rows = keys[keep], rows[keep]
    if not len(keys):
        return np.full(len(wanted), -1, dtype=np.int64)
    known, first = np.unique(keys, return_index=True)
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where((known[place] == wanted) & (wanted > 0), rows[first[place]], -1)


def _nesting(host: HostTable, rows: Rows) -> Nesting:
    return Nesting(host.thread[rows], host.start_ns[rows], host.end_ns[rows])


def around(host: HostTable, rows: Rows, inner: Rows) -> Rows:
    """The innermost of `rows` (of `host`) around the beginning of each inner row, -1 for none."""
    return _around(host, _nesting(host, rows), rows, inner)


def _around(host: HostTable, nesting: Nesting, rows: Rows, inner: Rows) -> Rows:
    """Row of the innermost interval of `rows` around the beginning of each inner row."""
    found = np.full(len(inner), -1, dtype=np.int64)
    known = inner >= 0
    if not len(rows) or not known.any():
        return found
    place = nesting.enclosing(host.thread[inner[known]], host.start_ns[inner[known]])
    found[known] = np.where(place >= 0, rows[place], -1)
    return found


def _outermost(nesting: Nesting, rows: Rows, inner: Rows) -> Rows:
    if not len(rows):
        return inner
    place = np.where(inner >= 0, np.searchsorted(rows, inner), -1)
    outer = nesting.outermost(place)
    return np.where(outer >= 0, rows[outer], -1)


def _forward(trace: Trace, operators: Rows, nesting: Nesting, operator: Rows) -> Rows:
    """For each backward operator, the forward operator that made its node.

    Autograd gives a node's number to every operator that begins before the next node is made, so the last of
    them made it; the engine's own threads repeat the number on the operator of the gradient.
    """
    host = trace.host
    engine = np.array([name.startswith(ENGINE) for name in trace.names] or [False])
    backward = np.unique(host.thread[operators[engine[host.name[operators]]]])
    found = np.full(len(operator), -1, dtype=np.int64)
    numbered = operators[(host.sequence[operators] > 0) & ~np.isin(host.thread[operators], backward)]
    if not len(numbered) or not len(backward):
        return found
    latest = numbered[np.argsort(-host.start_ns[numbered], kind="stable")]
    top = _outermost(nesting, operators, operator)
    carrier = np.where((operator >= 0) & (host.sequence[operator] > 0), operator, top)
    known = (carrier >= 0) & np.isin(host.thread[carrier], backward)
    found[known] = _match(host.sequence[carrier[known]], host.sequence[latest], latest)
    return found
