"""AMD's SQLite files: rocmProfileData (.rpd) and the analysis database of rocprofiler-compute."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penrose_ray.capture.recording import Launch, LaunchRows, Recording, assemble, duration_counter
from penrose_ray.capture.sqlite_file import opened, tables, whole
from penrose_ray.capture.tally import Tally

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

RPD = "rpd-sqlite"
COMPUTE = "rocprofiler-compute-sqlite"
_RPD_KERNELS = """
SELECT op.start, op.end, op.gpuId, op.queueId, op.id, description.string, kind.string
FROM rocpd_op AS op
JOIN rocpd_string AS kind ON kind.id = op.opType_id
LEFT JOIN rocpd_string AS description ON description.id = op.description_id
WHERE kind.string LIKE '%Kernel%'
"""
_RPD_CALLS = """
SELECT link.op_id, link.api_id, api.pid, call.gridX, call.gridY, call.gridZ, call.workgroupX, call.workgroupY,
       call.workgroupZ, name.string
FROM rocpd_api_ops AS link
LEFT JOIN rocpd_api AS api ON api.id = link.api_id
LEFT JOIN rocpd_kernelapi AS call ON call.api_ptr_id = link.api_id
LEFT JOIN rocpd_string AS name ON name.id = call.kernelName_id
"""
_COMPUTE_KERNELS = """
SELECT start_timestamp, end_timestamp, gpu_id, dispatch_id, kernel_name
FROM compute_dispatch LEFT JOIN compute_kernel USING (kernel_uuid)
"""


def is_rpd(names: list[str]) -> bool:
    """Whether a database with these tables is an RPD file."""
    return {"rocpd_op", "rocpd_string"} <= set(names)


def is_compute(names: list[str]) -> bool:
    """Whether a database with these tables comes from rocprofiler-compute."""
    return "compute_dispatch" in names


def read_rpd(path: Path) -> Recording:
    """Kernels in the order of the host calls that launched them, where the file links the two.

    Raises:
        TraceError: the database is damaged.
    """
    rows = LaunchRows()
    with opened(path) as connection:
        calls = _calls(connection)
        processes: dict[int, int] = {}
        for start, end, gpu, queue, op, description, kind in connection.execute(_RPD_KERNELS):
            api, pid, grid, block, name = calls.get(op, (0, 0, (0, 0, 0), (0, 0, 0), ""))
            rows.add(
                Launch(
                    name=str(name or description or kind),
                    start_ns=whole(start),
                    end_ns=whole(end),
                    process=processes.setdefault(pid, len(processes)),
                    device=whole(gpu),
                    stream=whole(queue),
                    correlation=api,
                    grid=grid,
                    block=block,
                )
            )
    return _finish(RPD, rows, Tally())


_Call = tuple[int, int, tuple[int, int, int], tuple[int, int, int], str]


def _calls(connection: sqlite3.Connection) -> dict[int, _Call]:
    """Host call, process, grid in groups, block and name of each operation."""
    if not {"rocpd_api_ops", "rocpd_api", "rocpd_kernelapi"} <= set(tables(connection)):
        return {}
    found: dict[int, _Call] = {}
    for op, api, pid, *rest in connection.execute(_RPD_CALLS):
        sizes = [whole(value) for value in rest[:6]]
        grid, block = (sizes[0], sizes[1], sizes[2]), (sizes[3], sizes[4], sizes[5])
        found[op] = (whole(api), whole(pid), grid, block, str(rest[6] or ""))
    return found


def read_compute(path: Path) -> Recording:
    """Dispatches with their durations; the database's metrics are means of a kernel, of no single launch.

    Raises:
        TraceError: the database is damaged.
    """
    rows = LaunchRows()
    tally = Tally()
    with opened(path) as connection:
        model = _model(connection)
        for start, end, gpu, dispatch, name in connection.execute(_COMPUTE_KERNELS):
            rows.add(
                Launch(
                    name=str(name or ""),
                    start_ns=whole(start),
                    end_ns=whole(end),
                    device=whole(gpu),
                    model=model,
                    correlation=whole(dispatch) + 1,
                )
            )
    tally.warn(
        "Metrics of this format are means over launches and are left out; read pmc_perf.csv for counters."
    )
    return _finish(COMPUTE, rows, tally)


def _model(connection: sqlite3.Connection) -> str:
    for (text,) in connection.execute("SELECT sys_info_extdata FROM compute_workload"):
        try:
            info = json.loads(text)
        except (TypeError, ValueError):
            continue
        if isinstance(info, dict):
            return f"AMD {info.get('gpu_model') or info.get('gpu_arch') or 'unknown'}"
    return ""


def _finish(format_: str, rows: LaunchRows, tally: Tally) -> Recording:
    return assemble(
        format_,
        rows.columns(),
        names=rows.names,
        devices=rows.devices,
        duration=duration_counter(format_.removesuffix("-sqlite"), rows.devices, vendor="amd"),
        tally=tally,
    )
