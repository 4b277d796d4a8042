"""GPU counters in Perfetto traces of phones and other Android devices.

Field numbers are those of protos/perfetto/trace/trace_packet.proto and gpu/gpu_counter_event.proto.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penrose_ray.capture.events import Capabilities
from penrose_ray.capture.files import head_of, plain
from penrose_ray.capture.gauge import GaugeSource, Reading
from penrose_ray.capture.protobuf import WireFormatError, children, message, number, signed, text
from penrose_ray.clock import SystemClock
from penrose_ray.errors import SourceError, TraceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_TRACE_PACKETS, _PACKET_TIME, _PACKET_COUNTERS = 1, 8, 52
_EVENT_DESCRIPTOR, _EVENT_COUNTERS, _EVENT_GPU = 1, 2, 3
_SPECS, _SPEC_ID, _SPEC_NAME, _SPEC_UNITS = 1, 1, 2, 7
_COUNTER_ID, _COUNTER_INT, _COUNTER_DOUBLE = 1, 2, 3
_UNITS = {7: "byte", 8: "KB", 9: "MB", 13: "Hz", 15: "MHz", 19: "ns", 20: "us", 28: "mW", 29: "W", 37: "%"}


@dataclass(slots=True)
class PerfettoCounters:
    """Counters of a trace and their readings in file order."""

    counters: dict[int, Counter] = field(default_factory=dict)
    readings: list[Reading] = field(default_factory=list)
    damaged: bool = False


def read_counters(path: Path) -> PerfettoCounters:
    """Every GPU counter event of a trace; a cut-off trace yields its whole packets.

    Raises:
        TraceError: the file cannot be read.
    """
    head_of(path)
    found = PerfettoCounters()
    try:
        with plain(path) as stream:
            data = stream.read()
        for packet in children(data, _TRACE_PACKETS):
            parts = message(packet)
            event = parts.get(_PACKET_COUNTERS)
            if isinstance(event, bytes):
                _add_event(event, number(parts.get(_PACKET_TIME)), found)
    except (WireFormatError, EOFError, zlib.error):
        found.damaged = True
    return found


def _add_event(event: bytes, time_ns: int, found: PerfettoCounters) -> None:
    for descriptor in children(event, _EVENT_DESCRIPTOR):
        for raw in children(descriptor, _SPECS):
            spec = message(raw)
            unit = _UNITS.get(number(spec.get(_SPEC_UNITS)), "")
            found.counters[number(spec.get(_SPEC_ID))] = Counter(
                text(spec.get(_SPEC_NAME)), unit, "perfetto", "mobile"
            )
    values: dict[Counter, float] = {}
    for raw in children(event, _EVENT_COUNTERS):
        parts = message(raw)
        counter = found.counters.get(number(parts.get(_COUNTER_ID)))
        value = _value(parts)
        if counter is not None and value is not None:
            values[counter] = value
    if values:
        gpu = number(message(event).get(_EVENT_GPU))
        found.readings.append(Reading(f"gpu {gpu}", "Android GPU", values, time_ns))


def _value(parts: dict[int, int | bytes]) -> float | None:
    real = parts.get(_COUNTER_DOUBLE)
    if isinstance(real, bytes) and len(real) == struct.calcsize("<d"):
        return float(struct.unpack("<d", real)[0])
    whole = parts.get(_COUNTER_INT)
    return float(signed(whole)) if isinstance(whole, int) else None


class PerfettoSource(GaugeSource):
    """The readings of a trace, in time order; its counters are known once it is made.

    Raises:
        TraceError: the file cannot be read.
    """

    def __init__(self, path: Path, *, capacity: int = 1 << 20) -> None:
        self._found = read_counters(path)
        super().__init__(tuple(self._found.counters.values()), clock=SystemClock(), capacity=capacity)

    def probe(self) -> Capabilities:
        """Whether the trace has GPU counters."""
        if self._found.readings:
            return Capabilities(
                available=True, per_kernel_counters=False, reasons=("Readings of a whole GPU.",)
            )
        reason = "The trace has no GPU counter: record it with the data source gpu.counters."
        return Capabilities(available=False, per_kernel_counters=False, reasons=(reason,))

    def _start(self) -> None:
        if not self._found.readings:
            raise SourceError(
                "The trace has no GPU counter.", remedy="Record it with the data source gpu.counters."
            )
        if self._found.damaged:
            self.tally.damaged += 1
            self.tally.warn("The trace is cut off: its whole packets are read.")
        self.push_readings(sorted(self._found.readings, key=lambda reading: reading.time_ns))

    def open(self) -> None:
        """Queue all readings; after `close`, once more."""
        super().open()
        self.stop()

    def _stop(self) -> None:
        pass

    def _readings(self) -> Sequence[Reading]:
        return []


__all__ = ["PerfettoCounters", "PerfettoSource", "TraceError", "read_counters"]
