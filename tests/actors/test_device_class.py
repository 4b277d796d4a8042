"""Readings of whole devices: reported by model, under one class that all clients of a task have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from capture.rigs import devices
from e2e import fleet

from penrose_ray.actors.client import Client
from penrose_ray.actors.device_class import DeviceClass
from penrose_ray.capture.gauge import GaugeSource
from penrose_ray.clock import SystemClock
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.snippet.identity import PLAIN
from penrose_ray.task import verify
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.outbox import Outbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

USE = Axis("linear", 0.0, 126.0)
"""A bin a percent."""
RIGS = {
    devices.Dcgm: ("gpu_use", "dcgm", "H100", [50] * 24),
    devices.Nvml: (
        "gpu_use",
        "nvml",
        "NVIDIA H100",
        [63] * 21,
    ),  # one of eight is an instance, which tells no use
    devices.Can: ("GpuLoad", "can", "automotive SoC", [0] * 24),
    devices.Perfetto: ("GPU Utilization", "perfetto", "Android GPU", list(range(120))),
}


@pytest.fixture(params=RIGS, ids=lambda rig: rig.__name__)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[devices.Gauges]:
    made = request.param(tmp_path)
    yield made
    made.source.close()
    made.tear_down()


def _task(keys: DesignKeys, counter: Counter, **changes: object) -> bytes:
    sets = (CounterSet("use", (counter,), (USE,)),)
    signed = fleet.signed_task(
        keys, (), counter_sets=sets, rotation=(("use",),), cover_rate=0.0, sampling_interval=1000, **changes
    )
    return signed.encode()


def test_every_reading_is_in_the_histogram_of_its_model(rig: devices.Gauges, design_keys: DesignKeys) -> None:
    name, source, model, expected = RIGS[type(rig)]
    rig.source.open()
    counter = next(each for each in rig.source.counters if (each.name, each.source) == (name, source))
    task = verify(_task(design_keys, counter))
    truth = fleet.Truth()
    models: set[str] = set()
    client = Client(
        rig.source, task, fleet.POLICY, Outbox(DirectUploader(lambda _: None), SystemClock()),
        clock=SystemClock(), rng=np.random.default_rng(1),
        on_contribution=lambda given, report: (truth.record(given, report), models.add(report.gpu_model)),
    )  # fmt: skip
    for _ in range(3):
        rig.launch(8)
        client.step()
    client.finish()
    assert models == {model}
    (counts,) = truth.counts.values()
    signature = DeviceClass(task, PLAIN).signature()
    assert signature is not None
    assert next(iter(truth.counts))[0] == signature.to_bytes()
    assert counts.tolist() == np.bincount(USE.index(np.array(expected, np.float64)), minlength=128).tolist()
    read = rig.source.health().delivered
    assert (client.counts.launches, client.counts.samples, client.counts.snippets) == (0, read, 0)
    assert client.counts.classes == 1


def test_no_kernel_has_a_kind_where_devices_are_read(design_keys: DesignKeys, tmp_path: Path) -> None:
    made = devices.Perfetto(tmp_path)
    assert isinstance(made.source, GaugeSource)
    made.source.open()
    task = verify(_task(design_keys, made.source.counters[0]))
    outbox = Outbox(DirectUploader(lambda _: None), SystemClock())
    client = Client(
        made.source, task, fleet.POLICY, outbox, clock=SystemClock(), rng=np.random.default_rng(1)
    )
    assert client._plan.counters == made.source.counters
