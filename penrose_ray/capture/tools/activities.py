"""Kineto's activities, all that tools need of them, streamed from the file into columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np

from penrose_ray.capture.chrome import ChromeReport, read_events
from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.kineto_events import (
    ABSENT,
    Args,
    KinetoCodec,
    PlacedEvent,
    integer,
    nanoseconds,
    times,
)
from penrose_ray.capture.tools.trace import DeviceTable, HostKind, HostTable, MemoryTable, Trace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

Number = int | float | str | None
_DEVICE = {
    "kernel": KernelKind.KERNEL,
    "Kernel": KernelKind.KERNEL,
    "gpu_memcpy": KernelKind.COPY,
    "Memcpy": KernelKind.COPY,
    "gpu_memset": KernelKind.SET,
    "Memset": KernelKind.SET,
}
_HOST = {
    "cpu_op": HostKind.OPERATOR,
    "Operator": HostKind.OPERATOR,
    "operator": HostKind.OPERATOR,
    "cuda_runtime": HostKind.CALL,
    "cuda_driver": HostKind.CALL,
    "hip_runtime": HostKind.CALL,
    "Runtime": HostKind.CALL,
    "runtime": HostKind.CALL,
    "python_function": HostKind.SOURCE,
    "user_annotation": HostKind.REGION,
}
_MEMORY = "[memory]"
_HOST_DEVICE = -1
_I63 = (1 << 63) - 1
_MOST_SHAPES = 100_000


class ToolArgs(Args, gc=False):
    """Arguments beyond those of the launch stream."""

    sequence: Number = msgspec.field(default=None, name="Sequence number")
    dims: msgspec.Raw = msgspec.field(default=ABSENT, name="Input Dims")
    dims_2022: msgspec.Raw = msgspec.field(default=ABSENT, name="Input dims")
    types: msgspec.Raw = msgspec.field(default=ABSENT, name="Input type")
    copied: Number = msgspec.field(default=None, name="bytes")
    allocated: Number = msgspec.field(default=None, name="Bytes")
    address: Number = msgspec.field(default=None, name="Addr")
    place: Number = msgspec.field(default=None, name="Device Id")
    place_kind: Number = msgspec.field(default=None, name="Device Type")


class ToolEvent(PlacedEvent, gc=False):
    """An event with everything that tools look at."""

    args: ToolArgs | None = None


class _Codec(KinetoCodec):
    """The slow way fills `ToolArgs` too."""

    def one(self, text: bytes) -> ToolEvent:
        event = super().one(text)
        assert isinstance(event, ToolEvent)  # noqa: S101 - the codec was made with this type
        if event.args is not None:
            known = {name: getattr(event.args, name) for name in Args.__struct_fields__}
            raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])["args"]
            event.args = ToolArgs(**known, **_tool_values(msgspec.json.decode(raw)))
        return event


def _tool_values(given: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(ToolArgs)[len(Args.__struct_fields__) :]:
        value = given.get(field.encode_name)
        if field.type is msgspec.Raw:
            values[field.name] = ABSENT if value is None else msgspec.Raw(msgspec.json.encode(value))
        else:
            values[field.name] = value if isinstance(value, int | float | str) else None
    return values


class _Ids:
    """Numbers of values in order of appearance."""

    def __init__(self) -> None:
        self.known: dict[Any, int] = {}

    def of(self, key: object) -> int:
        return self.known.setdefault(key, len(self.known))


class ActivityReader:
    """Sorts a rank's events into the three tables."""

    def __init__(self) -> None:
        self._names, self._threads, self._queues, self._shapes = _Ids(), _Ids(), _Ids(), _Ids()
        self._shapes.of("")
        self._live: dict[tuple[int, int], int] = {}
        self._blocks = 0
        self._parts: dict[str, list[NDArray[np.int64]]] = {"device": [], "host": [], "memory": []}

    def add(self, events: Iterable[ToolEvent], *, gap: bool) -> bool:
        """Take a block of events; whether a device activity carried the gap."""
        rows: dict[str, list[tuple[int, ...]]] = {"device": [], "host": [], "memory": []}
        for event in events:
            if event.ph == "X":
                if event.cat in _HOST:
                    start, end = times(event)
                    if end >= start:
                        rows["host"].append(self._host(event, start, end))
                elif event.cat in _DEVICE:
                    rows["device"].append(self._device(event, gap=gap and not rows["device"]))
            elif (
                event.cat == "cpu_instant_event"
                and _text(bytes(event.name)) == _MEMORY
                and event.args is not None
            ):
                rows["memory"].append(self._memory(event, event.args))
        for table, given in rows.items():
            if given:
                self._parts[table].append(np.array(given, dtype=np.int64))
        return bool(rows["device"])

    def _thread(self, event: ToolEvent) -> int:
        return self._threads.of((bytes(event.pid), bytes(event.tid)))

    def _host(self, event: ToolEvent, start: int, end: int) -> tuple[int, ...]:
        args = event.args or ToolArgs()
        return (
            _HOST[event.cat],
            self._names.of(bytes(event.name)),
            start,
            end,
            self._thread(event),
            (args.correlation or 0) & _I63,
            _external(args),
            (integer(args.sequence) or 0) & _I63,
            self._shape(args),
        )

    def _shape(self, args: ToolArgs) -> int:
        dims = bytes(args.dims) or bytes(args.dims_2022)
        if not dims or len(self._shapes.known) >= _MOST_SHAPES:
            return 0
        text = b"".join((dims + b" " + bytes(args.types)).split())
        return self._shapes.of(text.decode("utf-8", "replace"))

    def _device(self, event: ToolEvent, *, gap: bool) -> tuple[int, ...]:
        args = event.args or ToolArgs()
        start, end = times(event)
        start, end = (start, end) if end >= start >= 0 else (0, 0)
        device = args.device or 0
        return (
            _DEVICE[event.cat],
            self._names.of(bytes(event.name)),
            start,
            end,
            device & _I63,
            self._queues.of((device, args.stream if args.stream is not None else bytes(event.tid))),
            (args.correlation or 0) & _I63,
            _external(args),
            (integer(args.copied) or 0) & _I63,
            gap,
        )

    def _memory(self, event: ToolEvent, args: ToolArgs) -> tuple[int, ...]:
        size = integer(args.allocated) or 0
        place = _HOST_DEVICE if integer(args.place_kind) == 0 else max(integer(args.place) or 0, 0)
        key = place, integer(args.address) or 0
        if size > 0:
            self._blocks += 1
            self._live[key] = self._blocks
        block = self._live.get(key, 0) if size > 0 else self._live.pop(key, 0)
        moment = nanoseconds(bytes(event.ts)) or 0
        return moment & _I63, block, max(min(size, _I63), -_I63), place, self._thread(event)

    def trace(self, label: str, report: ChromeReport) -> Trace:
        """What was read; the parts are given up."""
        return Trace(
            label=label,
            format="kineto",
            names=tuple(_text(raw) for raw in self._names.known),
            models=_models(report.header),
            device=DeviceTable.of_matrix(self._matrix("device", len(DeviceTable.columns()))),
            host=HostTable.of_matrix(self._matrix("host", len(HostTable.columns()))),
            memory=MemoryTable.of_matrix(self._matrix("memory", len(MemoryTable.columns()))),
            shapes=tuple(self._shapes.known),
            warnings=_warnings(report),
        )

    def _matrix(self, table: str, width: int) -> NDArray[np.int64]:
        parts = self._parts.pop(table)
        return np.concatenate(parts) if parts else np.empty((0, width), dtype=np.int64)


def _external(args: ToolArgs) -> int:
    return (args.external_id or args.external_id_2021 or 0) & _I63


def _text(raw: bytes) -> str:
    try:
        name = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace").strip('"')
    return name if isinstance(name, str) else ""


def _models(header: dict[str, Any]) -> tuple[str, ...]:
    given = header.get("deviceProperties", header.get("computeProperties"))
    found: dict[int, str] = {}
    for device in given if isinstance(given, list) else ():
        number = integer(device.get("id")) if isinstance(device, dict) else None
        if number is not None and 0 <= number < 1 << 16:
            found[number] = str(device.get("name") or "unknown")
    return tuple(found.get(number, "unknown") for number in range(max(found, default=-1) + 1))


def _warnings(report: ChromeReport) -> tuple[str, ...]:
    found = []
    if report.damaged:
        found.append(f"{report.damaged} events could not be read and are left out.")
    if report.broken_stream or (report.found and not report.complete):
        found.append("The file is cut off: what came behind is missing from every figure.")
    return tuple(found)


def read_activities(stream: BinaryIO, label: str) -> Trace | None:
    """One rank's trace; None when the stream holds no list of events."""
    report = ChromeReport()
    reader = ActivityReader()
    gap = False
    for events, lost in read_events(stream, _Codec(ToolEvent), report):
        taken = reader.add(events, gap=gap or lost > 0)  # type: ignore[arg-type] # the codec yields ToolEvent
        gap = (gap or lost > 0) and not taken
    return reader.trace(label, report) if report.found else None
