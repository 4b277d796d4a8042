from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.actors.programs import stencil
from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.opencl import OpenCLSource
from penrose_ray.capture.record import record
from penrose_ray.capture.replay import ReplaySource

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("pyopencl")


def test_recorded_run_replays_as_it_was(tmp_path: Path) -> None:
    source = OpenCLSource(arm_all=True)
    with source:
        stencil.run(lambda: False, max_steps=20)
        source.stop()
        live = source.poll(50)
        written = record(source, tmp_path / "run.json.gz")
    assert written == 150
    replay = ReplaySource(tmp_path / "run.json.gz")
    replay.open()
    replay.arm(range(150), replay.counters)
    batch = replay.poll(1000)
    assert replay.counters == source.counters
    names = [source.names[name] for name in live.name_id[:10]]
    assert [replay.names[name] for name in batch.name_id] == names * 15
    assert (batch.counters[:, 0] == batch.end_ns - batch.start_ns).all()
    assert (batch.counters[:, 1] >= 0).all()
    np.testing.assert_allclose(
        batch.counters[:, 2], (batch.grid * batch.block).prod(axis=1) * 1000 / batch.counters[:, 0]
    )


def test_recording_tells_neither_when_nor_where(tmp_path: Path) -> None:
    with OpenCLSource(arm_all=True) as source:
        stencil.run(lambda: False, max_steps=1)
        source.stop()
        record(source, tmp_path / "run.json.gz")
    document = json.loads(gzip.decompress((tmp_path / "run.json.gz").read_bytes()))
    assert set(document) == {"schemaVersion", "traceEvents", "deviceProperties", "displayTimeUnit"}
    assert document["traceEvents"][0]["ts"] == 1.0
    allowed = {"device", "context", "stream", "correlation", "grid", "block", "queue delay ns"}
    assert all(set(event["args"]) <= allowed for event in document["traceEvents"])


def test_recording_stops_at_its_limit_and_waits_while_nothing_comes(tmp_path: Path) -> None:
    class Slow:
        names = ("k",)
        devices = ("d",)
        counters = ()
        exhausted = False

        def __init__(self) -> None:
            self.polls = 0

        def poll(self, max_events: int) -> EventBatch:
            self.polls += 1
            count = min(max_events, 3) if self.polls % 2 else 0
            return EventBatch.of(count, 0, start_ns=5000, end_ns=6000)

    waits: list[float] = []
    assert record(Slow(), tmp_path / "r.json.gz", max_launches=7, wait=waits.append) == 7  # type: ignore[arg-type]
    assert len(waits) == 2
