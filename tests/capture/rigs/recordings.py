"""Files of every format that a recording can have, 120 launches each."""

from __future__ import annotations

import json
import sqlite3
from abc import abstractmethod
from contextlib import closing
from typing import TYPE_CHECKING

from capture.rigs.base import Rig
from capture.rigs.protobuf_bytes import field

from penrose_ray.capture.replay import ReplaySource

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.capture.source import EventSource

LAUNCHES = 120


class Recorded(Rig):
    live = False
    cut_bytes = 12
    """So many bytes less end the file in the middle of its last launch."""
    salvaged: int | None = LAUNCHES - 1
    """Launches that such a file still yields."""

    def make(self) -> EventSource:
        self.path = self.folder / "recording"
        self.write(self.path, range(1, LAUNCHES + 1))
        return ReplaySource(self.path)

    @abstractmethod
    def write(self, path: Path, numbers: range | list[int]) -> None:
        """A file with a launch for each number; a number that comes twice is one launch reported twice."""

    def cut_short(self, count: int) -> int | None:
        del count
        self.path.write_bytes(self.path.read_bytes()[: -self.cut_bytes])
        return self.salvaged

    def repeat(self, count: int) -> int:
        self.path.unlink()
        self.write(self.path, [number for number in range(1, count + 1) for _ in range(2)])
        return count


class Kineto(Recorded):
    def write(self, path: Path, numbers: range | list[int]) -> None:
        events = [
            {
                "ph": "X",
                "cat": "kernel",
                "name": f"k{n % 3}",
                "ts": n,
                "dur": 1,
                "args": {"device": 0, "correlation": n},
            }
            for n in numbers
        ]
        path.write_text(json.dumps({"traceEvents": events}))


class Ncu(Recorded):
    def write(self, path: Path, numbers: range | list[int]) -> None:
        rows = [f'"{n}","k","{n + 1}"\n' for n in numbers]
        path.write_text('"ID","Kernel Name","gpu__time_duration.sum"\n"","","ns"\n' + "".join(rows))


class RocprofCsv(Recorded):
    def write(self, path: Path, numbers: range | list[int]) -> None:
        rows = [f"1,{n},k,{n},{n + 2}\n" for n in numbers]
        path.write_text("Agent_Id,Dispatch_Id,Kernel_Name,Start_Timestamp,End_Timestamp\n" + "".join(rows))


class ComputeCsv(Recorded):
    """pmc_perf.csv of rocprofiler-compute."""

    def write(self, path: Path, numbers: range | list[int]) -> None:
        rows = [f"{n},k,2,1024,256,{n},{n + 2},16\n" for n in numbers]
        head = (
            "Dispatch_ID,Kernel_Name,GPU_ID,Grid_Size,Workgroup_Size,Start_Timestamp,End_Timestamp,SQ_WAVES\n"
        )
        path.write_text(head + "".join(rows))


class RocprofJson(Recorded):
    salvaged = None

    def write(self, path: Path, numbers: range | list[int]) -> None:
        dispatches = [
            {
                "start_timestamp": n,
                "end_timestamp": n + 2,
                "stream_id": {"handle": 2},
                "dispatch_info": {"kernel_id": 1, "dispatch_id": n, "agent_id": {"handle": 1}},
            }
            for n in numbers
        ]
        tool = {
            "agents": [{"id": {"handle": 1}, "product_name": "AMD Instinct"}],
            "kernel_symbols": [{"kernel_id": 1, "kernel_name": "k.kd"}],
            "buffer_records": {"kernel_dispatch": dispatches},
        }
        path.write_text(json.dumps({"rocprofiler-sdk-tool": [tool]}))


class Sqlite(Recorded):
    cut_bytes = 2000
    salvaged = None

    def write(self, path: Path, numbers: range | list[int]) -> None:
        with closing(sqlite3.connect(path)) as connection:
            self.fill(connection, numbers)
            connection.commit()

    @abstractmethod
    def fill(self, connection: sqlite3.Connection, numbers: range | list[int]) -> None:
        """Make the tables."""


class Nsys(Sqlite):
    def fill(self, connection: sqlite3.Connection, numbers: range | list[int]) -> None:
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, shortName)")
        rows = [(n, n + 1, n, "k") for n in numbers]
        connection.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?)", rows)


class Rpd(Sqlite):
    def fill(self, connection: sqlite3.Connection, numbers: range | list[int]) -> None:
        connection.executescript(
            "CREATE TABLE rocpd_string (id INTEGER PRIMARY KEY, string);"
            "INSERT INTO rocpd_string VALUES (1, 'KernelExecution'), (2, 'gemm');"
            "CREATE TABLE rocpd_op (id, gpuId, queueId, start, end, description_id, opType_id);"
            "CREATE TABLE rocpd_api (id, pid);"
            "CREATE TABLE rocpd_api_ops (api_id, op_id);"
            "CREATE TABLE rocpd_kernelapi"
            " (api_ptr_id, gridX, gridY, gridZ, workgroupX, workgroupY, workgroupZ, kernelName_id);"
        )
        rows = [(n, 2, 0, n, n + 1, 2, 1) for n in numbers]
        connection.executemany("INSERT INTO rocpd_op VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        distinct = sorted(set(numbers))
        connection.executemany("INSERT INTO rocpd_api VALUES (?, 7)", [(n,) for n in distinct])
        connection.executemany("INSERT INTO rocpd_api_ops VALUES (?, ?)", [(n, n) for n in distinct])


class ComputeSqlite(Sqlite):
    """The analysis database of rocprofiler-compute."""

    def fill(self, connection: sqlite3.Connection, numbers: range | list[int]) -> None:
        connection.executescript(
            "CREATE TABLE compute_dispatch"
            " (start_timestamp, end_timestamp, gpu_id, dispatch_id, kernel_uuid);"
            "CREATE TABLE compute_kernel (kernel_uuid, kernel_name);"
            "CREATE TABLE compute_workload (sys_info_extdata);"
            "INSERT INTO compute_kernel VALUES (1, 'vecCopy');"
        )
        rows = [(n, n + 1, 0, n, 1) for n in numbers]
        connection.executemany("INSERT INTO compute_dispatch VALUES (?, ?, ?, ?, ?)", rows)


class Xplane(Recorded):
    salvaged = None

    def write(self, path: Path, numbers: range | list[int]) -> None:
        events = b"".join(
            field(4, field(1, 1) + field(2, n * 1000) + field(3, 1000) + field(4, field(1, 9) + field(3, n)))
            for n in numbers
        )
        line = field(1, 7) + field(2, b"Stream #7(Kernel)") + field(3, 100) + events
        plane = field(2, b"/device:GPU:0") + field(3, line)
        plane += field(4, field(1, 1) + field(2, field(1, 1) + field(2, b"fusion_1")))
        plane += field(5, field(1, 9) + field(2, field(1, 9) + field(2, b"correlation_id")))
        path.write_bytes(field(1, plane))
