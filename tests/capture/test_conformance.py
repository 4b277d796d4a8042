"""One suite for every source: the account, order, bounds, gaps, closing and opening again."""

from __future__ import annotations

import json
import sqlite3
from abc import ABC, abstractmethod
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.capture.collector import Collector, Forwarder
from penrose_ray.capture.cupti_source import CuptiSource
from penrose_ray.capture.dcgm import DcgmSource
from penrose_ray.capture.events import Capabilities, EventBatch
from penrose_ray.capture.queued import QueuedSource
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.capture.ring import DEVICE_NAME, KERNEL_NAME, RECORD, RingWriter
from penrose_ray.capture.ring_source import RingSource
from penrose_ray.capture.source import EventSource
from penrose_ray.clock import ManualClock
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.capture.events import SourceHealth

CAPACITY = 50
_DURATION = Counter("duration", "ns", "test", "none")


class Rig(ABC):
    """A source, and a way to make launches happen in front of it."""

    live = True
    """Launches go on arriving; a recording has all of them from the start."""
    gauges = False
    """Readings of devices, which need no arming."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source: EventSource = self.make()

    @abstractmethod
    def make(self) -> EventSource:
        """A source that holds at most CAPACITY launches."""

    def launch(self, count: int) -> None:  # noqa: B027 - a recording has all its launches already
        """Let `count` launches happen."""

    def tear_down(self) -> None:  # noqa: B027 - most rigs hold nothing
        """Give back what the rig holds."""


class ScriptedSource(QueuedSource):
    """The bare queue that all sources fed by records share."""

    def __init__(self) -> None:
        super().__init__((_DURATION,), capacity=CAPACITY)

    def probe(self) -> Capabilities:
        return Capabilities(available=True, per_kernel_counters=True)

    def _start(self) -> None:
        self.device_id("none")

    def _stop(self) -> None:
        pass


class Scripted(Rig):
    def make(self) -> ScriptedSource:
        self.scripted = ScriptedSource()
        return self.scripted

    def launch(self, count: int) -> None:
        name = self.scripted.name_id("kernel")
        self.scripted.queue.push(EventBatch.of(count, 1, name_id=name, counters=5.0))


class OpenCL(Rig):
    def make(self) -> EventSource:
        cl = pytest.importorskip("pyopencl")
        from penrose_ray.capture.opencl import OpenCLSource, profiled_queue  # noqa: PLC0415 - optional extra

        self.queue = profiled_queue()
        self.kernel = cl.Kernel(cl.Program(self.queue.context, "kernel void nothing() {}").build(), "nothing")
        return OpenCLSource(capacity=CAPACITY)

    def launch(self, count: int) -> None:
        for _ in range(count):
            self.kernel(self.queue, (1,), None)
        self.queue.finish()


class Ring(Rig):
    """A ring written by this process in the way of a captured one; the ring itself holds CAPACITY records."""

    def make(self) -> EventSource:
        (self.folder / "rings").mkdir(mode=0o700)
        self.writer = RingWriter(self.folder / "rings" / "a.ring", records=CAPACITY)
        self.writer.add_name(KERNEL_NAME, "kernel")
        self.writer.add_name(DEVICE_NAME, "none")
        return RingSource(self.folder / "rings", vendor="none", capacity=CAPACITY)

    def launch(self, count: int) -> None:
        records = np.zeros(count, dtype=RECORD)
        records["queued_ns"], records["start_ns"], records["end_ns"] = 1, 2, 7
        if count:
            self.writer.append(records)

    def tear_down(self) -> None:
        self.writer.close()


class Cupti(Rig):
    """CUPTI's source without a driver: the rig hands it the buffers."""

    def make(self) -> EventSource:
        self.recorded = _RecordedCupti(hold=0, capacity=CAPACITY)
        self.launched = 0
        return self.recorded

    def launch(self, count: int) -> None:
        if not count:
            return
        numbers = range(self.launched + 1, self.launched + count + 1)
        zeros = dict.fromkeys(("queued", "device_id", "context_id", "stream_id", "graph_node_id"), 0)
        sizes = dict.fromkeys((f"{kind}_{axis}" for kind in ("grid", "block") for axis in "xyz"), 1)
        kernels = [
            SimpleNamespace(
                **zeros, **sizes, correlation_id=n, start=10 * n, end=10 * n + 5, name=f"k{n % 3}"
            )
            for n in numbers
        ]
        self.recorded.completed(kernels)
        self.launched += count
        self.recorded.take_over()


class _RecordedCupti(CuptiSource):
    def _start(self) -> None:
        pass

    def _stop(self) -> None:
        self.take_over()

    def take_over(self) -> None:
        self._hand_on(self._order.take(last=True))


class Gauges(Rig):
    """dcgm-exporter's page, with as many devices as are to be read."""

    gauges = True

    def make(self) -> EventSource:
        self.clock = ManualClock()
        self.page = ""
        return DcgmSource(clock=self.clock, fetch=lambda _: self.page, period_s=1, capacity=CAPACITY)

    def launch(self, count: int) -> None:
        lines = [f'DCGM_FI_DEV_GPU_UTIL{{UUID="GPU-{n}",modelName="NVIDIA H100"}} 50' for n in range(count)]
        self.page = "\n".join(lines)
        self.clock.advance(1)


class Collected(Rig):
    """A collector that one rank forwards a scripted source to."""

    def make(self) -> EventSource:
        self.rank = ScriptedSource()
        self.rank.open()
        self.collector = Collector(self.rank.counters, bytes(16), capacity=CAPACITY)
        self.forwarder: Forwarder | None = None
        return self.collector

    def launch(self, count: int) -> None:
        if not self.collector.ranks:
            self.tear_down()
            self.forwarder = Forwarder(self.rank, self.collector.address, bytes(16))
            while not self.collector.ranks:
                self.collector.poll(0)
        for first in range(0, count, CAPACITY):
            part = min(CAPACITY, count - first)
            name = self.rank.name_id("kernel")
            self.rank.queue.push(EventBatch.of(part, 1, name_id=name, counters=5.0))
            assert self.forwarder is not None
            assert self.forwarder.forward() == part
        expected = self.collector.health().seen + count
        while count and self.collector.health().seen < expected:
            self.collector.receive()

    def tear_down(self) -> None:
        if self.forwarder is not None:
            self.forwarder.close()


class Replay(Rig):
    live = False
    launches = 120

    @abstractmethod
    def write(self) -> Path:
        """A file of 120 launches."""

    def make(self) -> EventSource:
        return ReplaySource(self.write())


class Kineto(Replay):
    def write(self) -> Path:
        path = self.folder / "t.json"
        events = [
            {
                "ph": "X",
                "cat": "kernel",
                "name": f"k{n % 3}",
                "ts": n,
                "dur": 1,
                "args": {"device": 0, "correlation": n},
            }
            for n in range(1, self.launches + 1)
        ]
        path.write_text(json.dumps({"traceEvents": events}))
        return path


class Nsys(Replay):
    def write(self) -> Path:
        path = self.folder / "t.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(
                "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, shortName)"
            )
            rows = [(n, n + 1, n, "k") for n in range(1, self.launches + 1)]
            connection.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?)", rows)
            connection.commit()
        return path


class Ncu(Replay):
    def write(self) -> Path:
        path = self.folder / "t.csv"
        rows = [f'"{n}","k","{n + 1}"' for n in range(self.launches)]
        path.write_text("\n".join(['"ID","Kernel Name","gpu__time_duration.sum"', '"","","ns"', *rows]))
        return path


class RocprofCsv(Replay):
    def write(self) -> Path:
        path = self.folder / "t.csv"
        rows = [f"1,{n},k,{n},{n + 2}" for n in range(1, self.launches + 1)]
        path.write_text("\n".join(["Agent_Id,Dispatch_Id,Kernel_Name,Start_Timestamp,End_Timestamp", *rows]))
        return path


RIGS: list[type[Rig]] = [Scripted, OpenCL, Ring, Cupti, Gauges, Collected, Kineto, Nsys, Ncu, RocprofCsv]


@pytest.fixture(params=RIGS, ids=lambda rig: rig.__name__)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    made: Rig = request.param(tmp_path)
    yield made
    made.source.close()
    made.tear_down()


def _conserved(health: SourceHealth) -> bool:
    return health.seen == health.delivered + health.dropped + health.pending and health.pending >= 0


def _all(source: EventSource, size: int = 7) -> EventBatch:
    parts = [source.poll(size)]
    while len(parts[-1]):
        parts.append(source.poll(size))
    return EventBatch.concat(parts)


def test_is_an_event_source(rig: Rig) -> None:
    assert isinstance(rig.source, EventSource)
    capabilities = rig.source.probe()
    assert capabilities.available or capabilities.reasons
    assert all(isinstance(counter, Counter) for counter in rig.source.counters)


def test_polls_are_bounded_and_in_order(rig: Rig) -> None:
    rig.source.open()
    rig.launch(30)
    assert len(rig.source.poll(0)) == 0
    first = rig.source.poll(20)
    assert len(first) == 20
    second = rig.source.poll(10)
    assert np.concatenate([first.seq, second.seq]).tolist() == list(range(30))


def test_columns_index_the_tables(rig: Rig) -> None:
    rig.source.open()
    rig.launch(30)
    before = list(rig.source.names)
    batch = _all(rig.source)
    assert int(batch.name_id.max()) < len(rig.source.names)
    assert int(batch.device.max()) < len(rig.source.devices)
    assert list(rig.source.names)[: len(before)] == before
    assert batch.counters.shape == (len(batch), len(rig.source.counters))


def test_every_launch_is_delivered_dropped_or_pending(rig: Rig) -> None:
    rig.source.open()
    for count in (10, 0, 25):
        rig.launch(count)
        assert _conserved(rig.source.health())
        rig.source.poll(8)
        assert _conserved(rig.source.health())
    rig.source.close()
    health = rig.source.health()
    assert _conserved(health)
    assert health.pending == 0


def test_slow_consumer_costs_launches_not_memory(rig: Rig) -> None:
    if not rig.live:
        pytest.skip("a recording does not grow")
    rig.source.open()
    rig.launch(CAPACITY + 40)
    kept = _all(rig.source)
    assert len(kept) <= CAPACITY
    rig.launch(5)
    after = _all(rig.source)
    assert len(after) == 5
    assert after.gap.tolist() == [True, False, False, False, False]
    health = rig.source.health()
    assert _conserved(health)
    assert (health.dropped, health.gaps) == (CAPACITY + 40 - len(kept), 1)


def test_closing_twice_is_closing_once(rig: Rig) -> None:
    rig.source.open()
    rig.launch(5)
    rig.source.close()
    once = rig.source.health()
    rig.source.close()
    assert rig.source.health() == once
    assert rig.source.exhausted
    assert len(rig.source.poll(10)) == 0


def test_closing_without_opening_is_allowed(rig: Rig) -> None:
    rig.source.close()
    assert len(rig.source.poll(10)) == 0


def test_opened_again_numbers_go_on_behind_a_gap(rig: Rig) -> None:
    rig.source.open()
    rig.launch(10)
    assert len(rig.source.poll(4)) == 4
    rig.source.close()
    rig.source.open()
    rig.launch(3)
    batch = _all(rig.source)
    assert _conserved(rig.source.health())
    first = rig.source.health().seen - len(batch)
    assert batch.seq.tolist() == list(range(first, first + len(batch)))
    assert batch.gap.tolist() == [True] + [False] * (len(batch) - 1)
    assert rig.source.health().gaps == 1


def test_only_armed_launches_show_counters(rig: Rig) -> None:
    if rig.gauges:
        pytest.skip("a gauge is read whenever it is polled")
    rig.source.open()
    rig.source.arm([3, 17, 29], rig.source.counters[:1])
    rig.launch(30)
    batch = EventBatch.concat([rig.source.poll(10), rig.source.poll(20)])
    shown = np.flatnonzero(~np.isnan(batch.counters[:, 0]))
    assert shown.tolist() == [3, 17, 29]
    assert (batch.counters[shown, 0] >= 0).all()
    assert np.isnan(batch.counters[:, 1:]).all()


def test_arming_what_is_over_is_counted(rig: Rig) -> None:
    if rig.gauges:
        pytest.skip("a gauge is read whenever it is polled")
    rig.source.open()
    rig.launch(10)
    rig.source.poll(10)
    rig.source.arm([2, 3], rig.source.counters)
    assert rig.source.health().late_arms == 2
