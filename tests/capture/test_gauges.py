"""Readings of whole devices: NVML by a library built here, dcgm-exporter, Perfetto, CAN."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from capture.rigs.devices import DBC, NVML
from capture.rigs.protobuf_bytes import field

from penrose_ray.capture.dcgm import DcgmSource, parse_page
from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.perfetto import PerfettoSource
from penrose_ray.capture.source import EventSource
from penrose_ray.capture.tally import Tally
from penrose_ray.clock import ManualClock
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",modelName="NVIDIA H100",Hostname="a"} 97
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",modelName="NVIDIA H100",Hostname="a"} N/A
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-1",modelName="NVIDIA H100",GPU_I_PROFILE="1g",GPU_I_ID="3"} 0.25
DCGM_FI_PROF_DRAM_ACTIVE{gpu="1",UUID="GPU-2",modelName="NVIDIA H100"} 0 1700000000000
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-1"} 0
garbage{ 5
"""


def test_page_gives_each_device_and_instance_its_own_reading() -> None:
    readings = {reading.identity: dict(reading.values) for reading in parse_page(PAGE, Tally())}
    use, dram = Counter("gpu_use", "%", "dcgm", "nvidia"), Counter("dram_use", "%", "dcgm", "nvidia")
    assert readings == {"GPU-1": {use: 97.0}, "GPU-1/3": {dram: 25.0}, "GPU-2": {dram: 0.0}}


@pytest.fixture
def exporter() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/metrics"
    server.shutdown()
    thread.join()
    server.server_close()


def test_dcgm_readings_are_gauges_once_a_period(exporter: str) -> None:
    clock = ManualClock()
    with DcgmSource(exporter, clock=clock, period_s=30) as source:
        assert isinstance(source, EventSource)
        batch = source.poll(100)
        assert (batch.kind == KernelKind.GAUGE).all()
        assert len(batch) == len(source.devices) == 3
        column = [counter.name for counter in source.counters].index("dram_use")
        assert sorted(batch.counters[~np.isnan(batch.counters[:, column]), column]) == [0.0, 25.0]
        clock.advance(29)
        assert len(source.poll(100)) == 0
        clock.advance(1)
        assert len(source.poll(100)) == 3


def test_dcgm_probe_names_missing_fields_and_remedies(exporter: str) -> None:
    reasons = DcgmSource(exporter, clock=ManualClock()).probe().reasons
    assert "no single kernels" in reasons[0]
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in reasons[1]
    assert "dcgmi profile --pause" in reasons[1]


def test_dcgm_that_does_not_answer_is_a_reason() -> None:
    capabilities = DcgmSource("http://127.0.0.1:1/metrics", clock=ManualClock()).probe()
    assert not capabilities.available
    assert "does not answer" in capabilities.reasons[0]
    with pytest.raises(SourceError, match="no http address"):
        DcgmSource("file:///etc/passwd", clock=ManualClock()).open()


def _perfetto_trace() -> bytes:
    specs = field(1, field(1, 5) + field(2, b"GPU Utilization") + field(7, 37))
    specs += field(1, field(1, 6) + field(2, b"Read Bytes") + field(7, 7))
    first = field(8, 1000) + field(52, field(1, specs) + field(2, field(1, 5) + field(3, 41.5)))
    second = field(8, 900) + field(52, field(2, field(1, 6) + field(2, 123)) + field(3, 0))
    other = field(8, 950) + field(2, b"a packet of another kind")
    return b"".join(field(1, packet) for packet in (first, other, second))


def test_perfetto_counters_are_read_in_time_order(tmp_path: Path) -> None:
    path = tmp_path / "t.perfetto-trace"
    path.write_bytes(_perfetto_trace())
    source = PerfettoSource(path)
    assert source.counters == (
        Counter("GPU Utilization", "%", "perfetto", "mobile"),
        Counter("Read Bytes", "byte", "perfetto", "mobile"),
    )
    source.open()
    batch = source.poll(10)
    assert batch.start_ns.tolist() == [900, 1000]
    np.testing.assert_equal(batch.counters, [[np.nan, 123], [41.5, np.nan]])


def test_perfetto_trace_that_is_cut_off_gives_its_whole_packets(tmp_path: Path) -> None:
    path = tmp_path / "t.perfetto-trace"
    path.write_bytes(_perfetto_trace()[:-3])
    source = PerfettoSource(path)
    source.open()
    assert len(source.poll(10)) == 1
    assert "cut off" in source.health().warnings[0]


def test_perfetto_trace_without_counters_says_how_to_record_them(tmp_path: Path) -> None:
    path = tmp_path / "t.perfetto-trace"
    path.write_bytes(field(1, field(8, 950)))
    assert "gpu.counters" in PerfettoSource(path).probe().reasons[0]


def test_can_signals_become_gauges(tmp_path: Path) -> None:
    can = pytest.importorskip("can")
    pytest.importorskip("cantools")
    from penrose_ray.capture.can_bus import CanSource  # noqa: PLC0415 - optional extra

    (tmp_path / "soc.dbc").write_text(DBC)
    source = CanSource(
        tmp_path / "soc.dbc", ["GpuLoad", "GpuTemp"], interface="virtual", channel="soc", clock=ManualClock()
    )
    assert source.probe().available
    with source, can.Bus(interface="virtual", channel="soc") as sender:
        for identifier, data in ((291, [150, 0xF6]), (292, [50]), (777, [1]), (291, [10, 20])):
            sender.send(
                can.Message(
                    arbitration_id=identifier, data=[*data, *[0] * (8 - len(data))], is_extended_id=False
                )
            )
        sender.send(can.Message(arbitration_id=291, data=[1], is_extended_id=False))
        batch = source.poll(10)
        assert batch.counters.tolist() == [[75.0, -10.0], [5.0, 20.0]]
        assert source.health().damaged == 1
    assert source.counters[0] == Counter("GpuLoad", "%", "can", "automotive")


def test_can_signal_that_the_dbc_lacks_is_named(tmp_path: Path) -> None:
    pytest.importorskip("can")
    pytest.importorskip("cantools")
    from penrose_ray.capture.can_bus import CanSource  # noqa: PLC0415 - optional extra

    (tmp_path / "soc.dbc").write_text(DBC)
    with pytest.raises(SourceError, match=r"no signal 'GpuLod'.*Use one of GpuLoad, GpuTemp, Speed"):
        CanSource(tmp_path / "soc.dbc", ["GpuLod"], interface="virtual", channel="soc", clock=ManualClock())


ASK = """
import json
from penrose_ray.capture.nvml import NvmlSource
from penrose_ray.clock import ManualClock
clock = ManualClock()
source = NvmlSource(clock=clock)
found = source.probe()
answer = [found.available, found.reasons]
if found.available:
    with source:
        source.poll(10)
        clock.advance(1)
        batch = source.poll(10)
        answer += [source.devices, [[None if v != v else v for v in row] for row in batch.counters.tolist()]]
print(json.dumps(answer))
"""


def _ask_nvml(folder: Path, init: int | None, *options: str) -> list[object]:
    pytest.importorskip("pynvml")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    if init is not None:
        library = folder / "libnvidia-ml.so.1"
        subprocess.run(
            [compiler, f"-DINIT={init}", *options, "-shared", "-fPIC", "-o", library, NVML],
            check=True,
            timeout=300,
        )
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, check=True, capture_output=True, text=True, timeout=300
    )
    answer: list[object] = json.loads(done.stdout)
    return answer


def test_nvml_reads_devices_and_mig_instances_and_nothing_they_lack(tmp_path: Path) -> None:
    available, reasons, devices, values = _ask_nvml(tmp_path, init=0)
    assert available
    assert devices == ["NVIDIA H100", "NVIDIA H100"]
    assert values == [[63, 21, 350.5, None, None], [None, None, 350.5, None, None]]
    assert "MIG-7 gives no utilisation (MIG instances do not)." in reasons  # type: ignore[operator]
    assert any("GPM" in reason for reason in reasons)  # type: ignore[attr-defined]


def test_gpm_gives_dram_and_tensor_use_of_gpus_and_instances(tmp_path: Path) -> None:
    """From the second reading on; what a device does not offer is not measured."""
    _, reasons, _, values = _ask_nvml(tmp_path, 0, "-DGPM")
    assert values == [[63, 21, 350.5, 10.1, 5.1], [None, None, 350.5, 10.001, None]]
    assert not any("GPM" in reason for reason in reasons)  # type: ignore[attr-defined]


def test_nvml_without_a_driver_says_so(tmp_path: Path) -> None:
    available, reasons = _ask_nvml(tmp_path, init=None)
    assert available is False
    assert reasons == [
        "NVML cannot be used: no NVIDIA driver is installed. Install it, or run on a machine with a GPU."
    ]


@pytest.mark.parametrize(
    ("code", "reason"), [(4, "refuses this user"), (9, "not loaded"), (18, "differ in version")]
)
def test_nvml_that_refuses_says_why(tmp_path: Path, code: int, reason: str) -> None:
    available, reasons = _ask_nvml(tmp_path, init=code)
    assert available is False
    assert reason in reasons[0]  # type: ignore[index]
