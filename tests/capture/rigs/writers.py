"""Small files of every recording format, with whatever a launch is to hold."""

from __future__ import annotations

import csv
import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from capture.rigs.protobuf_bytes import field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

DEVICE = 2


class Written(NamedTuple):
    """A launch as a file is to show it; times may be anything that the format can hold."""

    number: int
    name: str = "k"
    start: object = None
    """10 us x number by default."""
    end: object = None
    """5 us after the start by default."""

    def times(self) -> tuple[object, object]:
        """Start and end in ns."""
        start = 10_000 * self.number if self.start is None else self.start
        end = 10_000 * self.number + 5_000 if self.end is None else self.end
        return start, end


def write_kineto(path: Path, launches: Sequence[Written]) -> None:
    """Chrome JSON with times in us, as PyTorch writes it."""
    events = []
    for launch in launches:
        start, end = launch.times()
        numbers = isinstance(start, int) and isinstance(end, int)
        event = {"ph": "X", "cat": "kernel", "name": launch.name}
        event["ts"] = start / 1000 if isinstance(start, int) else start
        event["dur"] = (end - start) / 1000 if numbers else end
        events.append({**event, "args": {"device": DEVICE, "correlation": launch.number}})
    path.write_text(json.dumps({"traceEvents": events}))


def write_rocprof_json(path: Path, launches: Sequence[Written]) -> None:
    """rocprofv3 -f json."""
    ids = {name: number for number, name in enumerate(dict.fromkeys(each.name for each in launches))}
    dispatches = []
    for launch in launches:
        start, end = launch.times()
        info = {"kernel_id": ids[launch.name], "dispatch_id": launch.number, "agent_id": {"handle": DEVICE}}
        dispatches.append({"start_timestamp": start, "end_timestamp": end, "dispatch_info": info})
    tool = {
        "agents": [{"id": {"handle": 1}, "product_name": "AMD Instinct"}],
        "kernel_symbols": [{"kernel_id": number, "kernel_name": name} for name, number in ids.items()],
        "buffer_records": {"kernel_dispatch": dispatches},
    }
    path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))


def _write_csv(path: Path, rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def write_rocprof_csv(path: Path, launches: Sequence[Written]) -> None:
    """rocprofv3's kernel trace."""
    head = ("Agent_Id", "Dispatch_Id", "Kernel_Name", "Start_Timestamp", "End_Timestamp")
    _write_csv(path, [head, *((DEVICE, each.number, each.name, *each.times()) for each in launches)])


def write_compute_csv(path: Path, launches: Sequence[Written]) -> None:
    """pmc_perf.csv of rocprofiler-compute."""
    head = ("Dispatch_ID", "Kernel_Name", "GPU_ID", "SQ_WAVES", "Start_Timestamp", "End_Timestamp")
    _write_csv(path, [head, *((each.number, each.name, DEVICE, 16, *each.times()) for each in launches)])


def write_ncu(path: Path, launches: Sequence[Written]) -> None:
    """ncu --csv --page raw; it knows durations only."""
    head = ("ID", "Kernel Name", "Device", "gpu__time_duration.sum")
    rows = []
    for launch in launches:
        start, end = launch.times()
        numbers = isinstance(start, int) and isinstance(end, int)
        rows.append((launch.number, launch.name, DEVICE, end - start if numbers else end))
    _write_csv(path, [head, ("", "", "", "ns"), *rows])


def _write_sqlite(path: Path, schema: str, inserts: dict[str, Sequence[Sequence[object]]]) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(schema)
        for statement, rows in inserts.items():
            connection.executemany(statement, rows)
        connection.commit()


def write_nsys(path: Path, launches: Sequence[Written]) -> None:
    """nsys export --type sqlite."""
    _write_sqlite(
        path,
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, correlationId, shortName)",
        {
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?)": [
                (*each.times(), DEVICE, each.number, each.name) for each in launches
            ]
        },
    )


def write_rpd(path: Path, launches: Sequence[Written]) -> None:
    """rocmProfileData."""
    ids = {name: number for number, name in enumerate(dict.fromkeys(each.name for each in launches), start=2)}
    calls = sorted({each.number for each in launches})
    _write_sqlite(
        path,
        "CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string);"
        "INSERT INTO rocpd_string VALUES (1, 'KernelExecution');"
        "CREATE TABLE rocpd_op (id, gpuId, queueId, start, end, description_id, opType_id);"
        "CREATE TABLE rocpd_api (id, pid);"
        "CREATE TABLE rocpd_api_ops (api_id, op_id);"
        "CREATE TABLE rocpd_kernelapi"
        " (api_ptr_id, gridX, gridY, gridZ, workgroupX, workgroupY, workgroupZ, kernelName_id);",
        {
            "INSERT INTO rocpd_string VALUES (?, ?)": [(number, name) for name, number in ids.items()],
            "INSERT INTO rocpd_op VALUES (?, ?, 0, ?, ?, ?, 1)": [
                (each.number, DEVICE, *each.times(), ids[each.name]) for each in launches
            ],
            "INSERT INTO rocpd_api VALUES (?, 7)": [(number,) for number in calls],
            "INSERT INTO rocpd_api_ops VALUES (?, ?)": [(number, number) for number in calls],
        },
    )


def write_compute_sqlite(path: Path, launches: Sequence[Written]) -> None:
    """The analysis database of rocprofiler-compute."""
    names = dict.fromkeys(each.name for each in launches)
    _write_sqlite(
        path,
        "CREATE TABLE compute_dispatch (start_timestamp, end_timestamp, gpu_id, dispatch_id, kernel_uuid);"
        "CREATE TABLE compute_kernel (kernel_uuid, kernel_name);"
        "CREATE TABLE compute_workload (sys_info_extdata);",
        {
            "INSERT INTO compute_dispatch VALUES (?, ?, ?, ?, ?)": [
                (*each.times(), DEVICE, each.number, each.name) for each in launches
            ],
            "INSERT INTO compute_kernel VALUES (?, ?)": [(name, name) for name in names],
        },
    )


def write_xplane(path: Path, launches: Sequence[Written]) -> None:
    """XLA's xplane; only whole numbers fit."""
    ids = {name: number for number, name in enumerate(dict.fromkeys(each.name for each in launches), start=1)}
    events = b""
    for launch in launches:
        start, end = launch.times()
        assert isinstance(start, int)
        assert isinstance(end, int)
        stat = field(1, 9) + field(3, launch.number)
        event = field(1, ids[launch.name]) + field(2, start * 1000) + field(3, (end - start) * 1000)
        events += field(4, event + field(4, stat))
    line = field(1, 7) + field(2, b"Stream #7(Kernel)") + field(3, 0) + events
    plane = field(2, b"/device:GPU:2") + field(3, line)
    for name, number in ids.items():
        plane += field(4, field(1, number) + field(2, field(1, number) + field(2, name.encode())))
    plane += field(5, field(1, 9) + field(2, field(1, 9) + field(2, b"correlation_id")))
    path.write_bytes(field(1, plane))


WRITERS: dict[str, Callable[[Path, Sequence[Written]], None]] = {
    "kineto": write_kineto,
    "nsys": write_nsys,
    "ncu": write_ncu,
    "rocprof-csv": write_rocprof_csv,
    "rocprof-json": write_rocprof_json,
    "rpd": write_rpd,
    "compute-csv": write_compute_csv,
    "compute-sqlite": write_compute_sqlite,
    "xplane": write_xplane,
}
