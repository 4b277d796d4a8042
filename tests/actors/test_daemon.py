"""The client of a host: several programs on several devices, restarted and switched off while they run."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import needs
import numpy as np
import pytest
from e2e import fleet
from waiting import until

from penrose_ray.actors.client import Client
from penrose_ray.actors.daemon import HostClient
from penrose_ray.actors.state_directory import StateDirectory, SwitchedOff
from penrose_ray.capture.launch_order import COMPLETION_SPREAD
from penrose_ray.capture.preload import opencl_environment, opencl_ring_source
from penrose_ray.capture.ring import DEVICE_NAME, KERNEL_NAME, LAUNCHES_AT, RECORD, RingWriter
from penrose_ray.capture.ring_source import RingSource
from penrose_ray.clock import ManualClock, SystemClock
from penrose_ray.policy import OwnerPolicy
from penrose_ray.task import verify
from penrose_ray.telemetry import CLIENT_SNIPPETS
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.outbox import Outbox
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.actors.client import ClientCounts
    from penrose_ray.capture.guard import Duty
    from penrose_ray.crypto.keyfile import DesignKeys

WHOLE = "NVIDIA H100\x1fGPU-5a000000-0000-0000-0000-000000000000"
INSTANCE = "NVIDIA A100 MIG 1g.10gb\x1fMIG-00000000-0000-0000-0000-000000000077"
OPENCL_PROGRAM = """
import sys
import pyopencl as cl
context = cl.Context([device for platform in cl.get_platforms() for device in platform.get_devices()][:1])
queue = cl.CommandQueue(context)
program = cl.Program(context, "kernel void one() {} kernel void two() {}").build()
one, two = program.one, program.two
for step in range(int(sys.argv[1])):
    one(queue, (64,), (16,))
    two(queue, (8, 4), None)
queue.finish()
"""
POLICY = OwnerPolicy(
    allow_demo=True, least_sampling_interval=1, least_contributors=1, max_overhead_percent=100
)


class Program:
    """A captured process that runs its own kernels on two devices in turn, a snippet on each."""

    def __init__(self, rings: Path, name: str, kernels: int) -> None:
        self.writer = RingWriter(rings / f"{name}.ring")
        for kernel in range(kernels):
            self.writer.add_name(KERNEL_NAME, f"{name}_{kernel}")
        for device in (WHOLE, INSTANCE):
            self.writer.add_name(DEVICE_NAME, device)
        self._kernels = kernels
        self._launched = 0

    def run(self, snippets: float, out_of_order: np.random.Generator | None = None) -> None:
        """Launch so many snippets on each device; `out_of_order` lets them complete a little so."""
        count = 2 * int(snippets * fleet.SNIPPET)
        records = np.zeros(count, dtype=RECORD)
        records["correlation"] = self._launched + np.arange(1, count + 1)
        records["device"] = np.arange(count) % 2
        records["name"] = np.arange(count) // 2 % self._kernels
        records["queued_ns"], records["start_ns"], records["end_ns"] = 1, 2, 2 + 5000
        if out_of_order is not None:
            records = records[np.argsort(np.arange(count) + out_of_order.uniform(0, 40, count))]
        self.writer.append(records)
        self._launched += count


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    made = StateDirectory(tmp_path / "state")
    made.rings.mkdir(mode=0o700)
    return made


@pytest.fixture
def watch(state: StateDirectory, design_keys: DesignKeys) -> Callable[..., ClientCounts]:
    """Runs a daemon over the rings until it has seen so many launches; reports go into a list."""

    def run(launches: int, records: list[bytes], between: Callable[[], object]) -> ClientCounts:
        source = RingSource(state.rings, vendor="nvidia", source="cupti", hold=64)
        task = verify(fleet.signed_task(design_keys, source.counters[:1], cover_rate=0.0).encode())
        outbox = Outbox(DirectUploader(records.append), SystemClock())
        host = HostClient(source, task, POLICY, outbox, clock=SystemClock())
        between()
        enough = lambda: source.health().delivered >= launches  # noqa: E731
        return host.run(enough, wait=lambda _: None, on_duty=lambda _: None)

    return run


def test_programs_and_devices_each_have_snippets_of_their_own(
    state: StateDirectory, watch: Callable[..., ClientCounts]
) -> None:
    programs = [Program(state.rings, "gemm", 12), Program(state.rings, "stencil", 15)]

    def work() -> None:
        for program in programs:
            program.run(snippets=3)
            program.writer.close()

    records: list[bytes] = []
    total = 2 * 2 * 3 * fleet.SNIPPET
    counts = watch(total, records, work)
    reports = [decode(record) for record in records]
    assert counts.launches == total
    assert counts.snippets == 2 * 2 * 3
    assert counts.classes == 2 * 2
    places = {(report.gpu_model, report.signature) for report in reports}
    assert len(places) == 4
    assert {model for model, _ in places} == {"NVIDIA H100", "NVIDIA A100 MIG 1g.10gb"}
    assert b"MIG-0000" not in b"".join(records)


def test_programs_that_end_report_while_the_daemon_goes_on(
    state: StateDirectory, design_keys: DesignKeys
) -> None:
    """Ten ended programs on two devices each, none of which fills a snippet, beside one that goes on."""
    source = RingSource(state.rings, vendor="nvidia", source="cupti", hold=64)
    signed = fleet.signed_task(
        design_keys, source.counters[:1], cover_rate=0.0, sampling_interval=1, samples_per_histogram=200
    )
    records: list[bytes] = []
    outbox = Outbox(DirectUploader(records.append), SystemClock())
    task = verify(signed.encode())
    going_on = Program(state.rings, "stencil", 15)
    programs = [Program(state.rings, f"gemm_{number}", 12) for number in range(10)]
    host = HostClient(source, task, POLICY, outbox, clock=SystemClock())
    going_on.run(snippets=0.5)
    for program in programs:
        program.run(snippets=0.75)
        program.writer.close()
    before = CLIENT_SNIPPETS.value()
    looks: list[tuple[int, int]] = []

    def should_stop() -> bool:
        looks.append((int(CLIENT_SNIPPETS.value() - before), len(records)))
        return looks[-1] == (20, 20) or len(looks) > 100

    counts = host.run(should_stop, wait=lambda _: None, on_duty=lambda _: None)
    assert looks[-1] == (20, 20)
    assert len({decode(record).signature for record in records[:20]}) == 10
    assert counts.snippets == 22  # the daemon's end has ended the one that went on
    assert counts.launches == 2 * 10 * 300 + 2 * 200  # the last 64 were held back for their order until then
    assert counts.dropped_samples == 0
    going_on.writer.close()


@pytest.mark.parametrize("hold", [64, COMPLETION_SPREAD])
def test_what_is_held_back_for_its_order_reaches_the_last_snippet(
    state: StateDirectory, design_keys: DesignKeys, hold: int
) -> None:
    """A program whose launches complete out of order goes on when the client is stopped."""
    source = RingSource(state.rings, vendor="nvidia", source="cupti", hold=hold)
    signed = fleet.signed_task(
        design_keys, source.counters[:1], cover_rate=0.0, sampling_interval=1, samples_per_histogram=10_000
    )
    records: list[bytes] = []
    outbox = Outbox(DirectUploader(records.append), SystemClock())
    program = Program(state.rings, "gemm", 12)
    host = HostClient(source, verify(signed.encode()), POLICY, outbox, clock=SystemClock())
    program.run(snippets=3, out_of_order=np.random.default_rng(5))
    counts = host.run(lambda: True, wait=lambda _: None, on_duty=lambda _: None)
    health = source.health()
    assert (counts.launches, counts.samples, counts.snippets) == (2 * 1200, 2 * 1200, 2 * 3)
    assert (health.dropped, health.gaps, counts.dropped_samples) == (0, 0, 0)
    assert len(records) == 2  # a device each
    program.writer.close()


def test_what_waited_for_an_ended_program_is_freed(state: StateDirectory, design_keys: DesignKeys) -> None:
    source = RingSource(state.rings, vendor="nvidia", source="cupti", hold=64)
    task = verify(fleet.signed_task(design_keys, source.counters[:1], sampling_interval=1).encode())
    source.open()
    outbox = Outbox(DirectUploader(lambda _: None), SystemClock())
    client = Client(source, task, POLICY, outbox, clock=SystemClock(), rng=np.random.default_rng(1))
    for number in range(20):
        program = Program(state.rings, f"gemm_{number}", 12)
        program.run(snippets=0.75)
        client.step()
        assert client._cutter._open
        program.writer.close()
        until(lambda: not source._processes, client.step)
        assert client._cutter._open == {}
        assert client._waiting._seq == client._waiting._values == {}
    assert client.counts.snippets == 40
    source.close()


@needs.COMPILER
def test_unmodified_programs_that_end_leave_their_snippets_to_the_daemon(
    state: StateDirectory, design_keys: DesignKeys
) -> None:
    pytest.importorskip("pyopencl")
    source = opencl_ring_source(state.rings)
    task = verify(fleet.signed_task(design_keys, source.counters[:1], sampling_interval=2).encode())
    outbox = Outbox(DirectUploader(lambda _: None), SystemClock())
    host = HostClient(source, task, POLICY, outbox, clock=SystemClock())
    environment = opencl_environment(state.rings)
    left = [30, 40, 50]
    before = CLIENT_SNIPPETS.value()
    seen: list[int] = []

    def run_the_next(_: float) -> None:
        seen.append(int(CLIENT_SNIPPETS.value() - before))
        if left:
            command = [sys.executable, "-c", OPENCL_PROGRAM, str(left.pop(0))]
            subprocess.run(command, env=environment, check=True, timeout=300)

    counts = host.run(lambda: len(seen) > 3, wait=run_the_next, on_duty=lambda _: None)
    assert seen == [0, 1, 2, 3]
    assert (counts.snippets, counts.launches) == (3, 2 * (30 + 40 + 50))


def test_low_budget_pauses_programs_for_whole_windows_and_loses_nothing(
    state: StateDirectory, design_keys: DesignKeys
) -> None:
    """Windows of ten seconds in which the program launches a snippet and a half on each device."""
    source = RingSource(state.rings, vendor="nvidia", source="cupti")
    task = verify(fleet.signed_task(design_keys, source.counters[:1], cover_rate=0.0).encode())
    outbox = Outbox(DirectUploader(lambda _: None), SystemClock())
    clock = ManualClock()
    policy = POLICY.model_copy(update={"max_overhead_percent": 0.01})
    host = HostClient(source, task, policy, outbox, clock=clock)
    program = Program(state.rings, "gemm", 12)
    on: list[bool] = []

    def next_window(_: float) -> None:
        clock.advance(10)
        program.run(snippets=1.5)

    def note(duty: Duty) -> None:
        on.append(duty.on)

    stop = lambda: source.health().delivered >= 3 * 1200  # noqa: E731
    counts = host.run(stop, wait=next_window, on_duty=note)
    health = source.health()
    assert (health.seen, health.dropped, health.gaps) == (3600, 0, 2)
    assert counts.snippets == 3 * 2 * 2  # 1.5 on each device in each window that is on, none across a pause
    assert on.count(False) > on.count(True)
    program.writer.close()


def test_daemon_that_is_restarted_goes_on_with_programs_that_run(
    state: StateDirectory, watch: Callable[..., ClientCounts]
) -> None:
    program = Program(state.rings, "gemm", 12)
    total = 2 * 2 * fleet.SNIPPET
    first: list[bytes] = []
    second: list[bytes] = []
    watch(total - 64, first, lambda: program.run(snippets=2))
    counts = watch(total - 64, second, lambda: program.run(snippets=2))
    assert counts.launches >= total - 64
    signatures = [{decode(record).signature for record in records} for records in (first, second)]
    assert signatures[0] == signatures[1]
    assert len(signatures[0]) == 1
    program.writer.close()


def test_off_deletes_rings_that_programs_still_write(state: StateDirectory) -> None:
    program = Program(state.rings, "gemm", 12)
    program.run(snippets=1)
    state.spool.write_bytes(b"reports")
    assert state.switch_off() == SwitchedOff(ran=False, kept=())
    assert not state.path.exists()
    launches = int(program.writer._header[LAUNCHES_AT // 8])
    program.run(snippets=1)
    assert program.writer._header[LAUNCHES_AT // 8] == launches  # and it costs nothing any more
    program.writer.close()
    assert not state.path.exists()
