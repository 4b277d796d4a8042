"""Sources that launches arrive at while the consumer polls."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from capture.rigs.base import CAPACITY, Rig
from waiting import until

from penrose_ray.capture.collector import Collector, Forwarder
from penrose_ray.capture.cupti_source import CuptiSource
from penrose_ray.capture.events import Capabilities, EventBatch
from penrose_ray.capture.queued import QueuedSource
from penrose_ray.capture.ring import DEVICE_NAME, KERNEL_NAME, RECORD, RingWriter
from penrose_ray.capture.ring_source import RingSource
from penrose_ray.capture.torch_source import TorchSource
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penrose_ray.capture.source import EventSource

_DURATION = Counter("duration", "ns", "test", "none")


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

    def report(self, correlations: Iterable[int]) -> None:
        """Let launches happen."""
        ids = list(correlations)
        name = self.name_id("kernel")
        self.queue.push(EventBatch.of(len(ids), 1, name_id=name, correlation=ids, counters=5.0))


class Scripted(Rig):
    def make(self) -> ScriptedSource:
        self.scripted = ScriptedSource()
        return self.scripted

    def launch(self, count: int) -> None:
        self.scripted.report([0] * count)

    def cut_short(self, count: int) -> int:
        self.launch(count - 1)
        self.scripted.stop()
        return count - 1

    def repeat(self, count: int) -> int:
        self.scripted.report(number for number in range(1, count + 1) for _ in range(2))
        return count


class OpenCL(Rig):
    never_twice = "each call of the enqueue function is a launch"

    def make(self) -> EventSource:
        cl = pytest.importorskip("pyopencl")
        from penrose_ray.capture.opencl import OpenCLSource, profiled_queue  # noqa: PLC0415 - optional extra

        self.queue = profiled_queue()
        self.kernel = cl.Kernel(cl.Program(self.queue.context, "kernel void nothing() {}").build(), "nothing")
        self.opencl = OpenCLSource(capacity=CAPACITY)
        return self.opencl

    def launch(self, count: int) -> None:
        for _ in range(count):
            self.kernel(self.queue, (1,), None)
        self.queue.finish()

    def cut_short(self, count: int) -> int:
        for _ in range(count - 1):
            self.kernel(self.queue, (1,), None)
        self.opencl.stop()  # before they have ended
        self.kernel(self.queue, (1,), None)
        return count - 1

    def repeat(self, count: int) -> int:
        raise NotImplementedError


class Ring(Rig):
    """A ring written by this process in the way of a captured one; the ring itself holds CAPACITY records."""

    sees_ends = True
    hold: int | None = None

    def make(self) -> EventSource:
        (self.folder / "rings").mkdir(mode=0o700)
        self.writer = RingWriter(self.folder / "rings" / "a.ring", records=CAPACITY)
        self.writer.add_name(KERNEL_NAME, "kernel")
        self.writer.add_name(DEVICE_NAME, "none")
        self.correlation = 0
        self.abandoned = False
        return RingSource(self.folder / "rings", vendor="none", capacity=CAPACITY, hold=self.hold)

    def launch(self, count: int) -> None:
        numbers = np.arange(self.correlation + 1, self.correlation + count + 1)
        self.correlation += count
        self._report(numbers)

    def _report(self, correlations: np.ndarray[Any, Any]) -> None:
        records = np.zeros(len(correlations), dtype=RECORD)
        records["correlation"] = correlations
        records["queued_ns"], records["start_ns"], records["end_ns"] = 1, 2, 7
        if len(records):
            self.writer.append(records)

    def cut_short(self, count: int) -> int:
        self.launch(count - 1)
        self.writer._records[count - 1] = np.ones(1, dtype=RECORD)[0]  # written, but not yet counted
        self.writer.abandon()
        self.abandoned = True
        return count - 1

    def repeat(self, count: int) -> int:
        self._report(np.repeat(np.arange(1, count + 1), 2))
        return count

    def tear_down(self) -> None:
        if not self.abandoned:
            self.writer.close()


class CudaRing(Ring):
    """A ring as CUPTI fills it: by completion, with an EventProcessor behind it."""

    hold = 0


class Cupti(Rig):
    """CUPTI's source without a driver: the rig hands it the buffers."""

    def make(self) -> EventSource:
        self.recorded = _RecordedCupti(hold=0, capacity=CAPACITY)
        self.launched = 0
        return self.recorded

    def launch(self, count: int) -> None:
        numbers = range(self.launched + 1, self.launched + count + 1)
        self.launched += count
        self._complete(numbers)
        self.recorded.take_over()

    def _complete(self, numbers: Iterable[int]) -> None:
        zeros = dict.fromkeys(("queued", "device_id", "context_id", "stream_id", "graph_node_id"), 0)
        sizes = dict.fromkeys((f"{kind}_{axis}" for kind in ("grid", "block") for axis in "xyz"), 1)
        kernels = [
            SimpleNamespace(
                **zeros, **sizes, correlation_id=n, start=10 * n, end=10 * n + 5, name=f"k{n % 3}"
            )
            for n in numbers
        ]
        self.recorded.completed(kernels)

    def cut_short(self, count: int) -> int:
        self._complete(range(1, count))
        self.recorded.stop()  # with a buffer that nobody has taken over yet
        return count - 1

    def repeat(self, count: int) -> int:
        self._complete(number for number in range(1, count + 1) for _ in range(2))
        return count


class _RecordedCupti(CuptiSource):
    def _start(self) -> None:
        pass

    def _stop(self) -> None:
        self.take_over()

    def take_over(self) -> None:
        self._order.hand_on(last=True)


class Torch(Rig):
    """PyTorch's own profiler with every step recorded: operators, since the tests have no GPU."""

    never_twice = "operators have no number by which one could be told from the next"

    def make(self) -> EventSource:
        self.torch = pytest.importorskip("torch")
        if self.torch.cuda.is_available():
            pytest.skip("with a GPU the rig's operators are kernels and copies")
        self.one = self.torch.ones(1)
        self.torch_source = TorchSource(wait=0, warmup=0, active=1, capacity=CAPACITY)
        return self.torch_source

    def _operate(self, count: int) -> None:
        for _ in range(count):
            self.one.add_(self.one)

    def launch(self, count: int) -> None:
        self._operate(count)
        self.torch_source.step()

    def cut_short(self, count: int) -> int:
        self._operate(count - 1)
        self.torch_source.stop()  # in the middle of a step
        return count - 1

    def repeat(self, count: int) -> int:
        raise NotImplementedError


class Collected(Rig):
    """A collector that one rank forwards a scripted source to."""

    sees_ends = True

    def make(self) -> EventSource:
        self.rank = ScriptedSource()
        self.rank.open()
        self.collector = Collector(self.rank.counters, bytes(16), capacity=CAPACITY)
        self.forwarder: Forwarder | None = None
        return self.collector

    def launch(self, count: int) -> None:
        for first in range(0, max(count, 1), CAPACITY):
            self._report([0] * min(CAPACITY, count - first))

    def _report(self, correlations: list[int]) -> None:
        forwarder = self._connected()
        expected = self.collector.health().seen + len(correlations)
        self.rank.report(correlations)
        assert forwarder.forward() == len(correlations)
        until(lambda: self.collector.health().seen >= expected, self.collector.receive)

    def _connected(self) -> Forwarder:
        if self.forwarder is None or not self.collector.ranks:
            self.tear_down()
            self.forwarder = Forwarder(self.rank, self.collector.address, bytes(16))
            until(lambda: self.collector.ranks, lambda: self.collector.poll(0))
        return self.forwarder

    def cut_short(self, count: int) -> int:
        self.launch(count - 1)
        forwarder = self._connected()
        forwarder._connection.sendall(b"\xff\x00\x00\x00half a message")
        forwarder.close()
        until(lambda: not self.collector.ranks, self.collector.receive)
        return count - 1

    def repeat(self, count: int) -> int:
        self._report([number for number in range(1, count + 1) for _ in range(2)])
        return count

    def tear_down(self) -> None:
        if self.forwarder is not None:
            self.forwarder.close()
