"""Kineto's Chrome JSON (PyTorch and its kin) to a recording, streaming.

Launch order is the order of correlation ids, because GPU start order mixes streams differently in every step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from penrose_ray.capture.chrome import ChromeReport, read_events
from penrose_ray.capture.kineto_events import Args, Event, KinetoCodec, PlacedEvent, integer, sizes, times
from penrose_ray.capture.opencl_device import opencl_counters
from penrose_ray.capture.operators import OperatorIndex
from penrose_ray.capture.recording import (
    LARGEST_NS,
    DeviceTable,
    NameTable,
    Recording,
    assemble,
    duration_counter,
)
from penrose_ray.capture.tally import Tally
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from penrose_ray.histogram import Counter

FORMAT = "kineto"
_KERNEL = frozenset({"kernel", "Kernel"})
_U16 = 0xFFFF
_U32 = 0xFFFFFFFF
_I63 = (1 << 63) - 1
_MOST_SIZES = 10_000
_MOST_VIEWER_EVENTS = 1_000_000
"""XLA's export keeps the earliest ones, unless TF_PROFILER_TRACE_VIEWER_MAX_EVENTS says otherwise."""

_ROW = (
    "name_id",
    "device",
    "context",
    "stream",
    "graph_node",
    "correlation",
    "start_ns",
    "end_ns",
    "grid_x",
    "grid_y",
    "grid_z",
    "block_x",
    "block_y",
    "block_z",
    "gap",
    "external",
    "queue_delay",
)


class _Kernels:
    """Kernel events on their way into columns."""

    def __init__(self) -> None:
        self.names = NameTable()
        self.without_device = 0
        self._parts: list[NDArray[np.int64]] = []
        self._name_ids: dict[bytes, int] = {}
        self._known_sizes: dict[bytes, tuple[int, int, int]] = {}

    def add(self, events: Iterable[Event], *, gap: bool) -> None:
        """Append the kernels of a block; `gap` when events were lost there."""
        rows = [self._row(event, event.args or Args()) for event in events]
        if rows:
            part = np.array(rows, dtype=np.int64)
            part[0, _ROW.index("gap")] = gap
            self._parts.append(part)

    def _row(self, event: Event, args: Args) -> tuple[int, ...]:
        start, end = times(event)
        self.without_device += args.device is None
        return (
            self._name_id(bytes(event.name)),
            (args.device or 0) & _U16,
            (args.context or 0) & _U32,
            (args.stream or 0) & _U32,
            (args.graph_node or 0) & _U32,
            (args.correlation or 0) & _I63,
            start,
            end,
            *self._sizes(bytes(args.grid)),
            *self._sizes(bytes(args.block)),
            0,
            (args.external_id or args.external_id_2021 or 0) & _I63,
            -1 if args.queue_delay is None else args.queue_delay & _I63,
        )

    def _sizes(self, raw: bytes) -> tuple[int, int, int]:
        known = self._known_sizes.get(raw)
        if known is None:
            if len(self._known_sizes) > _MOST_SIZES:
                self._known_sizes.clear()
            known = self._known_sizes[raw] = sizes(raw)
        return known

    def _name_id(self, raw: bytes) -> int:
        known = self._name_ids.get(raw)
        if known is None:
            try:
                name = msgspec.json.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                name = raw.decode("utf-8", "replace").strip('"')
            known = self._name_ids[raw] = self.names.id_of(name if isinstance(name, str) else "")
        return known

    def table(self) -> NDArray[np.int64]:
        """All rows, shape (n, len(_ROW)); the parts are given up."""
        parts, self._parts = self._parts, []
        return np.concatenate(parts) if parts else np.empty((0, len(_ROW)), dtype=np.int64)


def read_kineto(
    members: Iterable[tuple[str, BinaryIO]], *, link_operators: bool = False, path: str = ""
) -> Recording:
    """A recording of one or more ranks, each a process of its own.

    Args:
        members: name and decompressed stream of each rank's file.
        link_operators: also count the launches that can be linked to a framework's operator.
        path: for the error text.

    Raises:
        TraceError: no member holds a list of trace events.
    """
    tally = Tally()
    kernels = _Kernels()
    devices = DeviceTable()
    parts: list[dict[str, NDArray[Any]]] = []
    linked = 0
    found = False
    for process, (name, stream) in enumerate(members):
        report = ChromeReport()
        operators = OperatorIndex() if link_operators else None
        _collect(stream, report, kernels, operators)
        found |= report.found
        table = kernels.table()
        if operators is not None:
            linked += operators.linked(table[:, _ROW.index("correlation")], table[:, _ROW.index("external")])
        if name and not len(table):
            tally.warn(f"{name}: no kernel; was this rank's GPU recorded?")
        parts.append(_columns(table, process, report.header, devices, tally))
        _account(report, name, tally)
    if not found:
        raise TraceError(
            f"{path} holds no list of trace events.", remedy="Export it as Chrome JSON once more."
        )
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    del parts
    return _finish(columns, kernels, devices, tally, linked)


def _finish(
    columns: dict[str, NDArray[Any]], kernels: _Kernels, devices: DeviceTable, tally: Tally, linked: int
) -> Recording:
    zero = int(((columns["end_ns"] == columns["start_ns"]) & (columns["end_ns"] > 0)).sum())
    if zero:
        tally.warn(f"{zero} launches last 0 ns: the writer rounds to microseconds.")
    if kernels.without_device:
        tally.warn(f"{kernels.without_device} launches name no device and count as those of device 0.")
    queue_delay = columns.pop("queue_delay")
    duration = duration_counter(FORMAT, devices)
    measured: dict[Counter, NDArray[np.float64]] = {}
    if np.isfinite(queue_delay).any():
        duration, measured = _opencl_counters(columns, queue_delay, duration.vendor)
    return assemble(
        FORMAT,
        columns,
        names=kernels.names,
        devices=devices,
        duration=duration,
        tally=tally,
        measured=measured,
        operators_linked=linked,
    )


def _opencl_counters(
    columns: dict[str, NDArray[Any]], queue_delay: NDArray[np.float64], vendor: str
) -> tuple[Counter, dict[Counter, NDArray[np.float64]]]:
    """Only `record` writes queue delays: what it recorded was measured by OpenCL and keeps its counters."""
    duration, delay, rate = opencl_counters(vendor)
    items = np.prod(columns["grid"].astype(np.float64) * columns["block"], axis=1)
    length = (columns["end_ns"] - columns["start_ns"]).astype(np.float64)
    per_us = np.divide(items * 1000, length, out=np.full(len(items), np.nan), where=length > 0)
    return duration, {delay: queue_delay, rate: per_us}


def _collect(
    stream: BinaryIO, report: ChromeReport, kernels: _Kernels, operators: OperatorIndex | None
) -> None:
    codec = KinetoCodec(Event if operators is None else PlacedEvent)
    lost_before = False
    for events, lost in read_events(stream, codec, report):
        chosen = [event for event in events if event.cat in _KERNEL and event.ph == "X"]
        kernels.add(chosen, gap=lost_before or lost > 0)
        lost_before = (lost_before or lost > 0) and not chosen
        if _for_a_viewer(report.header):
            report.viewer_events += sum(event.ph == "X" for event in events)
        if operators is not None:
            operators.add(events)


def _for_a_viewer(header: dict[str, Any]) -> bool:
    """Whether XLA wrote the file, from an xplane, for people to look at."""
    metadata = header.get("metadata")
    return isinstance(metadata, dict) and metadata.get("highres-ticks") is True


def _account(report: ChromeReport, name: str, tally: Tally) -> None:
    tally.damaged += report.damaged
    prefix = f"{name}: " if name else ""
    if report.damaged:
        tally.warn(f"{prefix}{report.damaged} events could not be read and are left out.")
    if report.repaired:
        tally.warn(f"{prefix}{report.repaired} events were not valid JSON and were repaired.")
    if report.broken_stream:
        tally.warn(f"{prefix}the compressed file is cut off or damaged: {report.broken_stream}.")
    if report.viewer_events:
        tally.warn(f"{prefix}an export for a trace viewer names no kernels: give the .xplane.pb beside it.")
    if report.viewer_events == _MOST_VIEWER_EVENTS:
        tally.gaps += 1
        tally.warn(f"{prefix}the export ends at {_MOST_VIEWER_EVENTS:,} events: later ones are lost.")
    if report.found and not report.complete:
        tally.warn(f"{prefix}the list of events does not end: the file is cut off, or its writer was killed.")


def _columns(
    table: NDArray[np.int64], process: int, header: dict[str, Any], devices: DeviceTable, tally: Tally
) -> dict[str, NDArray[Any]]:
    column = {name: table[:, index] for index, name in enumerate(_ROW)}
    base = integer(header.get("baseTimeNanoseconds")) or 0
    base = base if 0 <= base <= LARGEST_NS else 0
    models = _models(header)
    numbers, places = np.unique(column["device"], return_inverse=True)
    unnamed = [int(number) for number in numbers if models and int(number) not in models]
    if unnamed:
        tally.warn(f"Device numbers {unnamed} are not among the file's devices {sorted(models)}.")
    ids = np.array([devices.id_of(process, int(number), models.get(int(number), "")) for number in numbers])
    known = column["end_ns"] >= column["start_ns"]
    return {
        "name_id": column["name_id"].astype(np.uint32),
        "process": np.full(len(table), process, dtype=np.uint32),
        "device": (ids[places] if len(ids) else places).astype(np.uint16),
        "context": column["context"].astype(np.uint32),
        "stream": column["stream"].astype(np.uint32),
        "graph_node": column["graph_node"].astype(np.uint32),
        "correlation": column["correlation"].astype(np.uint64),
        "start_ns": np.where(known, column["start_ns"] + base, 0),
        "end_ns": np.where(known, column["end_ns"] + base, -1),
        "grid": table[:, _ROW.index("grid_x") :][:, :3].astype(np.uint32),
        "block": table[:, _ROW.index("block_x") :][:, :3].astype(np.uint32),
        "gap": column["gap"].astype(np.bool_),
        "queue_delay": np.where(column["queue_delay"] < 0, np.nan, column["queue_delay"]),
    }


def _models(header: dict[str, Any]) -> dict[int, str]:
    given = header.get("deviceProperties", header.get("computeProperties"))
    models: dict[int, str] = {}
    for device in given if isinstance(given, list) else ():
        number = integer(device.get("id")) if isinstance(device, dict) else None
        if number is not None:
            models[number] = str(device.get("name") or "unknown")
    return models
