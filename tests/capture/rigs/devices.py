"""Sources that read whole devices."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from capture.rigs.base import CAPACITY, Rig
from capture.rigs.protobuf_bytes import field

from penrose_ray.capture.dcgm import DcgmSource
from penrose_ray.capture.nvml import NvmlSource
from penrose_ray.capture.perfetto import PerfettoSource
from penrose_ray.clock import ManualClock

if TYPE_CHECKING:
    from penrose_ray.capture.source import EventSource

NVML = Path(__file__).parents[1] / "nvml.c"
DBC = """VERSION ""
BU_: SOC
BO_ 291 SocState: 8 SOC
 SG_ GpuLoad : 0|8@1+ (0.5,0) [0|100] "%" Vector__XXX
 SG_ GpuTemp : 8|8@1- (1,0) [-40|125] "degC" Vector__XXX
BO_ 292 Other: 8 SOC
 SG_ Speed : 0|8@1+ (1,0) [0|255] "km/h" Vector__XXX
"""


class Gauges(Rig):
    gauges = True


class Dcgm(Gauges):
    """dcgm-exporter's page, with as many devices as are to be read."""

    def make(self) -> EventSource:
        self.clock = ManualClock()
        self.page = ""
        return DcgmSource(clock=self.clock, fetch=lambda _: self.page, period_s=1, capacity=CAPACITY)

    def launch(self, count: int) -> None:
        self._show([f'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{n}",modelName="H100"}} 50\n' for n in range(count)])

    def _show(self, lines: list[str]) -> None:
        self.page = "".join(lines)
        self.clock.advance(1)

    def cut_short(self, count: int) -> int:
        self.launch(count)
        self.page = self.page[:-8]
        return count - 1

    def repeat(self, count: int) -> int:
        line = 'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{}",modelName="H100"}} 50\n'
        self._show([line.format(n) for n in range(count) for _ in range(2)])
        return count


class Nvml(Gauges):
    """NVML through nvidia-ml-py, and a library built here that has as many devices as are to be read."""

    def make(self) -> EventSource:
        self.pynvml = pytest.importorskip("pynvml")
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip("no C compiler on this machine")
        path = self.folder / "libnvidia-ml-standin.so"
        subprocess.run([compiler, "-DINIT=0", "-shared", "-fPIC", "-o", path, NVML], check=True, timeout=300)
        self.driver = self.pynvml.nvmlLib = ctypes.CDLL(str(path))
        self.pynvml._nvmlGetFunctionPointer_cache.clear()
        self.clock = ManualClock()
        return NvmlSource(clock=self.clock, capacity=CAPACITY)

    def launch(self, count: int) -> None:
        self.driver.standin_devices(count, count, 0)
        self.clock.advance(1)

    def cut_short(self, count: int) -> int:
        self.driver.standin_devices(count, count - 1, 0)
        self.clock.advance(1)
        return count - 1

    def repeat(self, count: int) -> int:
        self.driver.standin_devices(count, count, 1)
        self.clock.advance(1)
        return count

    def tear_down(self) -> None:
        self.pynvml.nvmlLib = None
        self.pynvml._nvmlGetFunctionPointer_cache.clear()


class Can(Gauges):
    """A virtual bus."""

    def make(self) -> EventSource:
        self.can = pytest.importorskip("can")
        pytest.importorskip("cantools")
        from penrose_ray.capture.can_bus import CanSource  # noqa: PLC0415 - optional extra

        dbc = self.folder / "soc.dbc"
        dbc.write_text(DBC)
        channel = str(self.folder)
        self.sender = self.can.Bus(interface="virtual", channel=channel, preserve_timestamps=True)
        self.time_s = 0
        return CanSource(
            dbc, ["GpuLoad"], interface="virtual", channel=channel, clock=ManualClock(), capacity=CAPACITY
        )

    def launch(self, count: int) -> None:
        for _ in range(count):
            self._send(bytes(8))

    def _send(self, data: bytes, copies: int = 1) -> None:
        self.time_s += 1
        message = self.can.Message(arbitration_id=291, data=data, timestamp=self.time_s, is_extended_id=False)
        for _ in range(copies):
            self.sender.send(message)

    def cut_short(self, count: int) -> int:
        self.launch(count - 1)
        self._send(b"")
        return count - 1

    def repeat(self, count: int) -> int:
        for _ in range(count):
            self._send(bytes(8), copies=2)
        return count

    def tear_down(self) -> None:
        self.sender.shutdown()


class Perfetto(Gauges):
    """An Android trace of 120 readings."""

    live = False
    readings = 120

    def make(self) -> EventSource:
        self.path = self.folder / "t.perfetto-trace"
        if not self.path.exists():
            self.path.write_bytes(b"".join(self._packets()))
        return PerfettoSource(self.path)

    def _packets(self) -> list[bytes]:
        spec = field(1, field(1, field(1, 5) + field(2, b"GPU Utilization") + field(7, 37)))
        values = [field(2, field(1, 5) + field(3, float(n))) for n in range(self.readings)]
        events = [spec + values[0], *values[1:]]
        return [field(1, field(8, 1000 + n) + field(52, event)) for n, event in enumerate(events)]

    def cut_short(self, count: int) -> int:
        del count
        self.path.write_bytes(self.path.read_bytes()[:-3])
        self.source = self.make()
        return self.readings - 1

    def repeat(self, count: int) -> int:
        del count
        self.path.write_bytes(b"".join(packet for packet in self._packets() for _ in range(2)))
        self.source = self.make()
        return self.readings
