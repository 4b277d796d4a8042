"""AMD rocprofv3: JSON, kernel trace CSV, counter collection CSV; rocprofiler-compute's CSV tables."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from penrose_ray.capture.csv_file import Row, integer, number, rows_of, timestamp
from penrose_ray.capture.files import plain
from penrose_ray.capture.recording import Launch, LaunchRows, Recording, assemble, duration_counter
from penrose_ray.capture.tally import Tally
from penrose_ray.errors import TraceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from pathlib import Path

JSON = "rocprofv3-json"
CSV = "rocprofv3-csv"
COMPUTE_CSV = "rocprofiler-compute-csv"
V3_REQUIRED = frozenset({"Dispatch_Id", "Kernel_Name", "Agent_Id"})
COMPUTE_REQUIRED = frozenset({"Dispatch_ID", "Kernel_Name"})
_NO_COUNTERS = frozenset(
    {
        "dispatch_id",
        "kernel_name",
        "gpu_id",
        "queue_id",
        "queue-id",
        "queue-index",
        "pid",
        "tid",
        "grid_size",
        "workgroup_size",
        "lds_per_workgroup",
        "scratch_per_workitem",
        "arch_vgpr",
        "accum_vgpr",
        "sgpr",
        "wave_size",
        "sig",
        "obj",
        "dispatchns",
        "start_timestamp",
        "end_timestamp",
        "completens",
        "kernel_id",
        "node_id",
        "correlation_id",
        "agent_id",
        "process_id",
        "thread_id",
    }
)


class _Handle(msgspec.Struct, gc=False):
    handle: int = 0


class _Size(msgspec.Struct, gc=False):
    x: int = 0
    y: int = 0
    z: int = 0


class _Info(msgspec.Struct, gc=False):
    kernel_id: int
    dispatch_id: int
    agent_id: _Handle = msgspec.field(default_factory=_Handle)
    queue_id: _Handle = msgspec.field(default_factory=_Handle)
    workgroup_size: _Size = msgspec.field(default_factory=_Size)
    grid_size: _Size = msgspec.field(default_factory=_Size)


class _Dispatch(msgspec.Struct, gc=False):
    dispatch_info: _Info
    start_timestamp: int = 0
    end_timestamp: int = 0
    stream_id: _Handle | None = None


class _Symbol(msgspec.Struct, gc=False):
    kernel_id: int
    kernel_name: str = ""
    demangled_kernel_name: str = ""


class _Agent(msgspec.Struct, gc=False):
    id: _Handle
    name: str = ""
    product_name: str = ""


class _Records(msgspec.Struct, gc=False):
    kernel_dispatch: list[_Dispatch] = msgspec.field(default_factory=list)


class _Tool(msgspec.Struct, gc=False):
    agents: list[_Agent] = msgspec.field(default_factory=list)
    kernel_symbols: list[_Symbol] = msgspec.field(default_factory=list)
    buffer_records: _Records = msgspec.field(default_factory=_Records)


class _Document(msgspec.Struct):
    tools: list[_Tool] = msgspec.field(name="rocprofiler-sdk-tool")


def read_rocprof_json(path: Path) -> Recording:
    """Kernel dispatches of every process in the file, in dispatch order.

    Raises:
        TraceError: the JSON is damaged or of another shape.
    """
    try:
        with plain(path) as stream:
            document = msgspec.json.decode(stream.read(), type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, EOFError, OSError, zlib.error) as error:
        raise TraceError(
            f"{path} is a damaged rocprofv3 file: {error}.", remedy="Run rocprofv3 again with -f json."
        ) from error
    rows, tally = LaunchRows(), Tally()
    for process, tool in enumerate(document.tools):
        _add_dispatches(tool, process, rows, tally)
    return assemble(
        JSON,
        rows.columns(),
        names=rows.names,
        devices=rows.devices,
        duration=duration_counter("rocprofv3", rows.devices, vendor="amd"),
        tally=tally,
    )


def _add_dispatches(tool: _Tool, process: int, rows: LaunchRows, tally: Tally) -> None:
    names = {
        symbol.kernel_id: symbol.demangled_kernel_name or symbol.kernel_name for symbol in tool.kernel_symbols
    }
    models = {agent.id.handle: agent.product_name or agent.name for agent in tool.agents}
    for dispatch in tool.buffer_records.kernel_dispatch:
        info = dispatch.dispatch_info
        name = names.get(info.kernel_id, "")
        if not name:
            tally.warn("Some dispatches name a kernel that the file does not list.")
        items, block = info.grid_size, info.workgroup_size
        rows.add(
            Launch(
                name=name,
                start_ns=dispatch.start_timestamp,
                end_ns=dispatch.end_timestamp,
                process=process,
                device=info.agent_id.handle,
                model=models.get(info.agent_id.handle, ""),
                stream=(dispatch.stream_id or info.queue_id).handle,
                correlation=info.dispatch_id,
                grid=_groups((items.x, items.y, items.z), (block.x, block.y, block.z)),
                block=(block.x, block.y, block.z),
            )
        )


def _groups(items: tuple[int, int, int], block: tuple[int, int, int]) -> tuple[int, int, int]:
    """Work-groups of a size that AMD's tools give in work-items."""
    x, y, z = (-(-item // max(width, 1)) for item, width in zip(items, block, strict=True))
    return x, y, z


class _Collected:
    """Launches by process and dispatch; the first value of a counter counts, another pass adds nothing."""

    def __init__(self, source: str, tally: Tally) -> None:
        self.rows = LaunchRows()
        self._source = source
        self._tally = tally
        self._index: dict[tuple[str, str], int] = {}
        self._values: dict[str, dict[int, float]] = {}
        self._processes: dict[str, int] = {}

    def launch(self, row: Row, dispatch: str) -> int:
        """Index of the row's launch, a new one when its dispatch is new."""
        process = row.get("Process_Id", row.get("pid", ""))
        known = self._index.setdefault((process, dispatch), len(self._index))
        if known == len(self.rows):
            items, block = _table_size(row, "Grid_Size"), _table_size(row, "Workgroup_Size")
            agent = row.get("Agent_Id", row.get("GPU_ID", ""))
            self.rows.add(
                Launch(
                    name=row["Kernel_Name"],
                    start_ns=timestamp(row.get("Start_Timestamp", "")),
                    end_ns=timestamp(row.get("End_Timestamp", "")),
                    process=self._processes.setdefault(process, len(self._processes)),
                    device=integer(agent.removeprefix("Agent ")),
                    model="AMD unknown",
                    stream=integer(row.get("Stream_Id", row.get("Queue_Id", row.get("queue-id", "")))),
                    correlation=integer(dispatch) + 1,
                    grid=_groups(items, block),
                    block=block,
                )
            )
        return known

    def measure(self, launch: int, name: str, text: str) -> None:
        """Note a counter's value."""
        value = number(text)
        if math.isnan(value):
            return
        cells = self._values.setdefault(name, {})
        if launch in cells:
            self._tally.duplicates += 1
        else:
            cells[launch] = value

    def finish(self, format_: str) -> Recording:
        """The recording, in dispatch order."""
        measured = {}
        for name, cells in self._values.items():
            column = np.full(len(self.rows), np.nan)
            column[list(cells)] = list(cells.values())
            measured[Counter(name, "", self._source, "amd")] = column
        if self._tally.duplicates:
            count = self._tally.duplicates
            self._tally.warn(
                f"{count} rows or values repeat a dispatch, as further passes do, and are not added."
            )
        return assemble(
            format_,
            self.rows.columns(),
            names=self.rows.names,
            devices=self.rows.devices,
            duration=duration_counter(self._source, self.rows.devices, vendor="amd"),
            tally=self._tally,
            measured=measured,
        )


def _table_size(row: Row, name: str) -> tuple[int, int, int]:
    if f"{name}_X" in row:
        x, y, z = (integer(row.get(f"{name}_{axis}", "")) for axis in "XYZ")
        return x, y, z
    return integer(row.get(name, "")), 1, 1


def read_rocprof_csv(path: Path) -> Recording:
    """Kernel trace, or counters with one row per (dispatch, counter).

    Raises:
        TraceError: no rocprofv3 header, or no row fits it.
    """
    tally = Tally()
    collected = _Collected("rocprofv3", tally)
    for row in rows_of(path, V3_REQUIRED, tally):
        before = len(collected.rows)
        launch = collected.launch(row, row["Dispatch_Id"])
        if "Counter_Name" in row:
            collected.measure(launch, row["Counter_Name"], row.get("Counter_Value", ""))
        else:
            tally.duplicates += launch < before
    return collected.finish(CSV)


def read_compute_csv(path: Path) -> Recording:
    """`pmc_perf.csv` or `timestamps.csv`: a row per dispatch, a column per counter.

    Raises:
        TraceError: no such header, or no row fits it.
    """
    tally = Tally()
    collected = _Collected("rocprofiler-compute", tally)
    for row in rows_of(path, COMPUTE_REQUIRED, tally):
        launch = collected.launch(row, row["Dispatch_ID"])
        for name, text in row.items():
            base = name.rsplit("_", 1)[0] if name.rsplit("_", 1)[-1].isdigit() else name
            if name.lower() not in _NO_COUNTERS and base.lower() not in _NO_COUNTERS:
                collected.measure(launch, name, text)
    return collected.finish(COMPUTE_CSV)
