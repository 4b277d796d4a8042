"""NVIDIA Nsight Systems' SQLite export."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from penrose_ray.capture.recording import Launch, LaunchRows, Recording, assemble, duration_counter
from penrose_ray.capture.sqlite_file import columns, opened, tables, whole
from penrose_ray.capture.tally import Tally

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

FORMAT = "nsys-sqlite"
_KERNELS = re.compile(r"CUPTI_ACTIVITY_KIND_(CONCURRENT_)?KERNEL(_V\d+)?")
_STRINGS = re.compile(r"StringIds(_V\d+)?")
_GRAPHS, _DIAGNOSTICS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "DIAGNOSTIC_EVENT"
_WARNING = 2
"""Severity in Nsight's diagnostics from which on a text is no mere information."""
_LOST = re.compile(r"\b(?:lost|dropped|overflow\w*|not all .* collected)\b", re.IGNORECASE)
_NAME_COLUMNS = ("demangledName", "shortName", "mangledName", "name")
_OPTIONAL = (
    "globalPid",
    "deviceId",
    "contextId",
    "streamId",
    "graphNodeId",
    "correlationId",
    "gridX",
    "gridY",
    "gridZ",
    "blockX",
    "blockY",
    "blockZ",
)


def is_nsys(names: list[str]) -> bool:
    """Whether a database with these tables comes from Nsight Systems."""
    return any(_STRINGS.fullmatch(name) for name in names) or any(_KERNELS.fullmatch(name) for name in names)


def read_nsys(path: Path) -> Recording:
    """The kernels of all processes and devices.

    Launch order is that of correlation ids within a process. A file without a kernel table has no kernels.

    Raises:
        TraceError: the database is damaged.
    """
    tally = Tally()
    rows = LaunchRows()
    with opened(path) as connection:
        names = tables(connection)
        _warn_of_what_is_missing(connection, names, tally)
        table = kernel_table(names)
        if table is None:
            tally.warn("The file has no kernel table: no CUDA kernel ran while it was recorded.")
        else:
            for launch in _launches(connection, table, names, tally):
                rows.add(launch)
    return assemble(
        FORMAT,
        rows.columns(),
        names=rows.names,
        devices=rows.devices,
        duration=duration_counter("nsys", rows.devices, vendor="nvidia"),
        tally=tally,
    )


def _warn_of_what_is_missing(connection: sqlite3.Connection, names: list[str], tally: Tally) -> None:
    """Say so when graphs have no kernels of their own in the file, or the profiler itself lost events."""
    if _GRAPHS in names:
        (graphs,) = connection.execute(f'SELECT count(*) FROM "{_GRAPHS}"').fetchone()
        if graphs:
            tally.warn(
                f"{graphs} graph launches are recorded as a whole, without their kernels: use nsys with"
                " --cuda-graph-trace=node."
            )
    if _DIAGNOSTICS in names and {"severity", "text"} <= columns(connection, _DIAGNOSTICS):
        query = f'SELECT text FROM "{_DIAGNOSTICS}" WHERE severity >= {_WARNING}'
        lost = sum(_LOST.search(str(text)) is not None for (text,) in connection.execute(query))
        if lost:
            tally.warn(f"The profiler says {lost} times that it lost events: launches may be missing.")


def kernel_table(names: list[str]) -> str | None:
    """The table of kernels among these tables."""
    return max(filter(_KERNELS.fullmatch, names), default=None)


def _launches(connection: sqlite3.Connection, table: str, names: list[str], tally: Tally) -> Iterator[Launch]:
    present = columns(connection, table)
    text = strings(connection, names)
    models = _models(connection, names)
    name_columns = [column for column in _NAME_COLUMNS if column in present]
    optional = [column if column in present else "NULL" for column in _OPTIONAL]
    query = ", ".join(['"start"', '"end"', *(name_columns or ["NULL"]), *optional])
    processes: dict[Any, int] = {}
    for start, end, *rest in connection.execute(f'SELECT {query} FROM "{table}"'):
        count = len(name_columns) or 1
        ids, numbers = rest[:count], [whole(value) for value in rest[count:]]
        name = next((found for found in (_name(value, text) for value in ids) if found), "")
        if not name:
            tally.warn("Some kernels have no name in the file.")
        pid, device, context, stream, node, correlation, *sizes = numbers
        yield Launch(
            name=name,
            start_ns=whole(start),
            end_ns=whole(end),
            process=processes.setdefault(pid, len(processes)),
            device=device,
            model=models.get(device, ""),
            context=context,
            stream=stream,
            graph_node=node,
            correlation=correlation,
            grid=(sizes[0], sizes[1], sizes[2]),
            block=(sizes[3], sizes[4], sizes[5]),
        )


def _name(value: object, text: dict[int, str]) -> str:
    return value if isinstance(value, str) else text.get(value, "") if isinstance(value, int) else ""


def strings(connection: sqlite3.Connection, names: list[str]) -> dict[int, str]:
    """The texts that other tables name by number."""
    table = max(filter(_STRINGS.fullmatch, names), default=None)
    return dict(connection.execute(f'SELECT id, value FROM "{table}"')) if table else {}


def _models(connection: sqlite3.Connection, names: list[str]) -> dict[int, str]:
    if "TARGET_INFO_GPU" not in names or not {"id", "name"} <= columns(connection, "TARGET_INFO_GPU"):
        return {}
    return dict(connection.execute("SELECT id, name FROM TARGET_INFO_GPU"))
