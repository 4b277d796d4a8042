"""`penrose client run --source` with readings of whole devices."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from capture.rigs import devices
from e2e import fleet

from penrose_ray.capture.nvml import NvmlSource
from penrose_ray.clock import SystemClock
from penrose_ray.histogram import Axis, Counter, CounterSet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(call: Call, tmp_path: Path, design_keys: DesignKeys) -> Call:
    """Runs a dry client for a task of one counter."""
    (tmp_path / "policy.toml").write_text(
        "allow_demo = true\nleast_sampling_interval = 1\nleast_contributors = 1\n"
    )

    def go(counter: Counter, *more: object) -> tuple[int, str, str]:
        sets = (CounterSet("use", (counter,), (Axis("linear", 0.0, 126.0),)),)
        signed = fleet.signed_task(
            design_keys, (), counter_sets=sets, rotation=(("use",),), cover_rate=0.0, sampling_interval=1000
        )
        (tmp_path / "device.task").write_bytes(signed.encode())
        return call(
            "client", "run", tmp_path / "device.task", "--gateway", "http://127.0.0.1:1", "--dry-run",
            "--policy", tmp_path / "policy.toml", "--state", tmp_path / "state",
            "--source", counter.source, *more,
        )  # fmt: skip

    return go


def test_a_phone_s_trace_is_reported(run: Call, tmp_path: Path) -> None:
    made = devices.Perfetto(tmp_path)
    code, out, err = run(made.source.counters[0], "--trace", made.path)
    assert code == 0, err
    shown = [json.loads(line) for line in out.splitlines()]
    assert {each["gpu_model"] for each in shown} == {"Android GPU"}
    assert len({each["signature"] for each in shown}) == 1
    assert len(shown) == 120 // 40
    assert '"samples": 120' in err


def test_source_without_its_option_says_which(run: Call) -> None:
    code, _, err = run(Counter("GPU Utilization", "%", "perfetto", "mobile"))
    assert code == 10
    assert "--source perfetto needs --trace FILE" in err


def test_without_an_exporter_the_command_says_so(run: Call) -> None:
    code, _, err = run(Counter("gpu_use", "%", "dcgm", "nvidia"), "--exporter", "http://127.0.0.1:1/metrics")
    assert code == 21
    assert "dcgm-exporter does not answer at http://127.0.0.1:1/metrics" in err


def test_without_a_bus_the_command_says_so(run: Call, tmp_path: Path) -> None:
    pytest.importorskip("can")
    pytest.importorskip("cantools")
    (tmp_path / "soc.dbc").write_text(devices.DBC)
    load = Counter("GpuLoad", "%", "can", "automotive")
    code, _, err = run(load, "--dbc", tmp_path / "soc.dbc", "--bus", "socketcan:nocan7")
    assert code == 21
    assert "CAN channel nocan7 cannot be opened" in err


def test_without_a_driver_the_command_says_so(run: Call) -> None:
    pytest.importorskip("pynvml")
    if NvmlSource(clock=SystemClock()).probe().available:
        pytest.skip("this machine has a driver")
    code, _, err = run(Counter("gpu_use", "%", "nvml", "nvidia"))
    assert code == 21
    assert "NVML cannot be used" in err
