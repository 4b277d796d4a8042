from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from penrose_ray.actors.programs import stencil
from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.opencl import OpenCLSource, profiled_queue
from penrose_ray.capture.source import EventSource
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable

cl = pytest.importorskip("pyopencl")

TEXT = """
kernel void add(global int *x) { x[get_global_id(0)] += 1; }
kernel void twice(global int *x) { x[get_global_id(0)] *= 2; }
"""


@pytest.fixture
def launch() -> Callable[..., Any]:
    queue = profiled_queue()
    program = cl.Program(queue.context, TEXT).build()
    kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)

    def call(
        name: str, size: tuple[int, ...] = (64,), local: tuple[int, ...] | None = None, **named: object
    ) -> object:
        event = kernels[name](queue, size, local, buffer, **named)
        queue.finish()
        return event

    return call


def test_every_launch_is_seen_in_order_with_its_geometry(launch: Callable[..., Any]) -> None:
    with OpenCLSource() as source:
        assert isinstance(source, EventSource)
        launch("add", (64,), (16,))
        launch("twice", (8, 4), (2, 2))
        launch("add", (64,))
        batch = source.poll(10)
    assert [source.names[name] for name in batch.name_id] == ["add", "twice", "add"]
    assert batch.seq.tolist() == [0, 1, 2]
    assert batch.grid.tolist() == [[4, 1, 1], [4, 2, 1], [64, 1, 1]]
    assert batch.block.tolist() == [[16, 1, 1], [2, 2, 1], [1, 1, 1]]
    assert np.isnan(batch.counters).all()
    assert batch.end_ns.tolist() == [0, 0, 0]


def test_sizes_in_groups_count_as_work_items(launch: Callable[..., Any]) -> None:
    with OpenCLSource() as source:
        launch("add", (4,), (16,), g_times_l=True)
        assert source.poll(1).grid.tolist() == [[4, 1, 1]]


def test_armed_launch_shows_what_its_profiling_event_says(launch: Callable[..., Any]) -> None:
    with OpenCLSource() as source:
        source.arm([1], source.counters)
        launch("add")
        profile = launch("add", (1024,)).profile
        batch = source.poll(10)
    assert np.isnan(batch.counters[0]).all()
    duration, delay, rate = batch.counters[1]
    assert duration == profile.end - profile.start
    assert delay == profile.start - profile.queued
    assert rate == pytest.approx(1024 * 1000 / duration)
    assert (batch.start_ns[1], batch.end_ns[1]) == (profile.start, profile.end)


def test_only_the_armed_counters_are_read(launch: Callable[..., Any]) -> None:
    with OpenCLSource() as source:
        source.arm([0], source.counters[1:2])
        launch("add")
        assert np.isnan(source.poll(1).counters[0]).tolist() == [True, False, True]


def test_unfinished_armed_launch_holds_back_what_follows() -> None:
    queue = profiled_queue()
    kernel = cl.Kernel(cl.Program(queue.context, TEXT).build(), "add")
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)
    gate = cl.UserEvent(queue.context)
    with OpenCLSource() as source:
        source.arm([1], source.counters)
        kernel(queue, (64,), None, buffer)
        kernel(queue, (64,), None, buffer, wait_for=[gate])
        kernel(queue, (64,), None, buffer)
        assert source.poll(10).seq.tolist() == [0]
        gate.set_status(cl.command_execution_status.COMPLETE)
        queue.finish()
        assert source.poll(10).seq.tolist() == [1, 2]


def test_slow_consumer_costs_launches_not_memory(launch: Callable[..., Any]) -> None:
    with OpenCLSource(capacity=4) as source:
        for _ in range(10):
            launch("add")
        assert source.poll(100).seq.tolist() == [0, 1, 2, 3]
        launch("twice")
        after = source.poll(100)
        health = source.health()
    assert after.seq.tolist() == [10]
    assert after.gap.tolist() == [True]
    assert (health.seen, health.delivered, health.dropped, health.gaps) == (11, 5, 6, 1)


def test_queue_without_profiling_gives_nan_and_a_warning() -> None:
    queue = cl.CommandQueue(profiled_queue().context)
    kernel = cl.Kernel(cl.Program(queue.context, TEXT).build(), "add")
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4096)
    with OpenCLSource() as source:
        source.arm([0], source.counters)
        kernel(queue, (64,), None, buffer)
        queue.finish()
        batch = source.poll(1)
        health = source.health()
    assert np.isnan(batch.counters).all()
    assert health.unread == 1
    assert "profiling enabled" in health.warnings[0]


def test_close_restores_pyopencl() -> None:
    before = (cl.enqueue_nd_range_kernel, cl._cl.enqueue_nd_range_kernel)
    with OpenCLSource():
        assert cl.enqueue_nd_range_kernel is not before[0]
    assert (cl.enqueue_nd_range_kernel, cl._cl.enqueue_nd_range_kernel) == before


def test_two_sources_closed_in_the_wrong_order_see_their_own_time(launch: Callable[..., Any]) -> None:
    first, second = OpenCLSource(), OpenCLSource()
    first.open()
    launch("add")
    second.open()
    launch("add")
    first.close()
    launch("twice")
    second.stop()
    launch("twice")
    assert first.health().seen == 2
    assert second.poll(10).seq.tolist() == [0, 1]
    assert second.exhausted


def test_opening_twice_is_refused() -> None:
    with OpenCLSource() as source, pytest.raises(SourceError, match="open already"):
        source.open()


def test_ever_new_sizes_cost_bounded_memory(
    launch: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.capture.opencl._MOST_SITES", 4)
    with OpenCLSource() as source:
        for size in range(1, 21):
            launch("add", (size,))
        assert source.poll(7).grid[:, 0].tolist() == list(range(1, 8))
        assert source.poll(100).grid[:, 0].tolist() == list(range(8, 21))
        for size in range(30, 40):
            launch("twice", [size])
            assert source.poll(1).grid[0].tolist() == [size, 1, 1]
        assert len(source._rows) <= 8


def test_polling_while_the_program_runs_loses_nothing() -> None:
    with OpenCLSource() as source:
        program = threading.Thread(target=lambda: stencil.run(lambda: False, max_steps=300), daemon=True)
        source.arm(range(0, 3000, 7), source.counters)
        program.start()
        parts = []
        deadline = time.monotonic() + 300
        while program.is_alive():
            assert time.monotonic() < deadline, "the program does not end"
            parts.append(source.poll(64))
        source.stop()
        while not source.exhausted:
            parts.append(source.poll(64))
        batch = EventBatch.concat(parts)
    assert batch.seq.tolist() == list(range(3000))
    assert (batch.name_id.reshape(300, 10) == np.arange(10)).all()
    assert np.flatnonzero(~np.isnan(batch.counters[:, 0])).tolist() == list(range(0, 3000, 7))


def test_whole_program_is_captured() -> None:
    with OpenCLSource() as source:
        result = stencil.run(lambda: False, max_steps=7)
        source.stop()
        batch = source.poll(1 << 20)
        assert source.exhausted
    assert len(batch) == result.launches == 70
    assert source.devices == [result.device]
    assert (batch.name_id.reshape(7, 10) == np.arange(10)).all()
