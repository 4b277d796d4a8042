"""What the host did in a recording of Nsight Systems: CUDA calls, NVTX ranges, calls of MPI."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penrose_ray.capture.nsys import kernel_table, strings
from penrose_ray.capture.sqlite_file import columns, opened, tables, whole
from penrose_ray.capture.tools.trace import HostKind, HostTable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

_CALLS = re.compile(r"CUPTI_ACTIVITY_KIND_RUNTIME(_V\d+)?")
_MPI = re.compile(r"MPI_(COLLECTIVES|P2P|START_WAIT|OTHER)_EVENTS")
_RANGES = "NVTX_EVENTS"
_EMITTED = re.compile(r"(?P<name>.+?)(?:, seq = (?P<seq>\d+))?, op_id = \d+(?:, .*)?")
_OPERATOR = re.compile(r"[\w.]+::[\w.]+")
_OF_PROCESS = ~0xFFFFFF
"""A thread's global number without these bits is its process' global number."""


class _Event(NamedTuple):
    """A row of the host's table before names and threads are numbered."""

    kind: HostKind
    name: str
    start_ns: int
    end_ns: int
    thread: int
    correlation: int
    sequence: int


class NsysHost(NamedTuple):
    """Tables by the number that `read_nsys` gave the process, and the names that they index."""

    tables: dict[int, HostTable]
    names: tuple[str, ...]


def read_host(path: Path) -> NsysHost:
    """Read everything that lies in an interval and belongs to a process with kernels.

    Raises:
        TraceError: the database is damaged.
    """
    known: dict[str, int] = {}
    rows: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    with opened(path) as connection:
        found = tables(connection)
        processes = _processes(connection, kernel_table(found))
        threads: dict[int, int] = {}
        for event in _events(connection, found):
            process = processes.get(event.thread & _OF_PROCESS)
            if process is not None and event.end_ns >= event.start_ns:
                rows[process].append(
                    (
                        event.kind,
                        known.setdefault(event.name, len(known)),
                        event.start_ns,
                        event.end_ns,
                        threads.setdefault(event.thread, len(threads)),
                        event.correlation,
                        0,
                        event.sequence,
                        0,
                    )
                )
    return NsysHost(
        {process: HostTable.of_matrix(np.array(given, np.int64)) for process, given in rows.items()},
        tuple(known),
    )


def _processes(connection: sqlite3.Connection, table: str | None) -> dict[int, int]:
    """The global number of each process with kernels and its own number, in order of appearance."""
    if table is None or "globalPid" not in columns(connection, table):
        return {}
    query = f'SELECT globalPid FROM "{table}" GROUP BY globalPid ORDER BY MIN(rowid)'
    return {whole(pid): number for number, (pid,) in enumerate(connection.execute(query))}


def _events(connection: sqlite3.Connection, found: list[str]) -> Iterator[_Event]:
    text = strings(connection, found)
    calls = max(filter(_CALLS.fullmatch, found), default=None)
    if calls is not None:
        query = f'SELECT start, "end", globalTid, nameId, correlationId FROM "{calls}"'
        for *place, name, correlation in connection.execute(query):
            yield _event(HostKind.CALL, text.get(name, ""), place, correlation=whole(correlation))
    if _RANGES in found and {"text", "textId"} <= columns(connection, _RANGES):
        query = f'SELECT start, "end", globalTid, text, textId FROM {_RANGES} WHERE "end" IS NOT NULL'
        for *place, written, name in connection.execute(query):
            yield _range(written or text.get(name, ""), place)
    for table in filter(_MPI.fullmatch, found):
        query = f'SELECT start, "end", globalTid, textId FROM "{table}"'
        for *place, name in connection.execute(query):
            yield _event(HostKind.CALL, text.get(name, ""), place)


def _range(text: str, place: list[object]) -> _Event:
    """PyTorch's `emit_nvtx` names operators, and regions too, with their numbers behind them."""
    found = _EMITTED.fullmatch(text)
    if found is None:
        return _event(HostKind.REGION, text, place)
    kind = HostKind.OPERATOR if _OPERATOR.fullmatch(found["name"]) else HostKind.REGION
    return _event(kind, found["name"], place, sequence=int(found["seq"] or 0))


def _event(
    kind: HostKind, name: str, place: list[object], *, correlation: int = 0, sequence: int = 0
) -> _Event:
    start, end, thread = map(whole, place)
    return _Event(kind, name, start, end, thread, correlation, sequence)
