"""The client of a host: several programs on several devices, restarted and switched off while they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from e2e import fleet

from penrose_ray.actors.daemon import HostClient, StateDirectory
from penrose_ray.capture.ring import DEVICE_NAME, KERNEL_NAME, RECORD, RingWriter
from penrose_ray.capture.ring_source import RingSource
from penrose_ray.clock import SystemClock
from penrose_ray.policy import OwnerPolicy
from penrose_ray.settings import EnrolmentSettings
from penrose_ray.task import verify
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.outbox import Outbox
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.actors.client import ClientCounts
    from penrose_ray.crypto.keyfile import DesignKeys

WHOLE = "NVIDIA H100\x1fGPU-5a000000-0000-0000-0000-000000000000"
INSTANCE = "NVIDIA A100 MIG 1g.10gb\x1fMIG-00000000-0000-0000-0000-000000000077"
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

    def run(self, snippets: int) -> None:
        """Launch so many snippets on each device."""
        count = 2 * snippets * fleet.SNIPPET
        records = np.zeros(count, dtype=RECORD)
        records["correlation"] = self._launched + np.arange(1, count + 1)
        records["device"] = np.arange(count) % 2
        records["name"] = np.arange(count) // 2 % self._kernels
        records["queued_ns"], records["start_ns"], records["end_ns"] = 1, 2, 2 + 5000
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
        host = HostClient(source, task, POLICY, outbox, clock=SystemClock(), enrolment=EnrolmentSettings())
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
    assert state.switch_off() is False
    assert not state.path.exists()
    program.run(snippets=1)
    program.writer.close()
    assert not state.path.exists()
