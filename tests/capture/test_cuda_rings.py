"""The library that the CUDA driver loads into programs, against a stand-in for libcupti, and its reader."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.injection import cuda_environment, cuda_ring_source, header_flags
from penrose_ray.capture.ring import DEVICE_NAME, KERNEL_NAME, RECORD, RingWriter
from penrose_ray.capture.ring_source import RingSource
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from penrose_ray.capture.source import EventSource

PROGRAM = "import ctypes, os; print(ctypes.CDLL(os.environ['CUDA_INJECTION64_PATH']).InitializeInjection())"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {PROGRAM!r}], check=True)\n{PROGRAM}"


@pytest.fixture
def rings(tmp_path: Path) -> Path:
    return tmp_path / "rings"


@pytest.fixture
def injected(tmp_path: Path, rings: Path) -> dict[str, str]:
    """The environment of a program that the driver would load our library into."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    try:
        flags = header_flags()
    except SourceError as error:
        pytest.skip(str(error))
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    standin = Path(__file__).with_name("cupti_standin.c")
    subprocess.run(
        [compiler, *flags, "-shared", "-fPIC", "-o", tmp_path / "libcupti.so.13", standin],
        check=True,
        timeout=300,
    )
    return cuda_environment(rings, {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})


def _run(environment: dict[str, str], program: str = PROGRAM, *before: str) -> str:
    command = [*before, sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    return done.stdout


def _drain(source: EventSource) -> EventBatch:
    parts = [source.poll(1000)]
    while len(parts[-1]):
        parts.append(source.poll(1000))
    return EventBatch.concat(parts)


def test_kernels_come_in_launch_order_and_once(injected: dict[str, str], rings: Path) -> None:
    with cuda_ring_source(rings) as source:
        source.arm([3], source.counters)
        assert _run(injected) == "1\n"
        batch = source.poll(10)
        health = source.health()
    assert batch.correlation.tolist() == [10, 11, 12]
    assert [source.names[name] for name in batch.name_id] == ["relu", "gemm", "gemm"]
    np.testing.assert_equal(batch.counters[:, 0], [np.nan, 250, np.nan])
    assert (health.dropped, health.delivered, health.duplicates) == (2, 3, 1)
    assert batch.gap.tolist() == [True, False, False]


def test_paused_program_stops_recording_and_notes_no_kernel(injected: dict[str, str], rings: Path) -> None:
    with cuda_ring_source(rings) as source:
        source.pause(paused=True)
        _run(
            injected,
            f"{PROGRAM}; cupti = ctypes.CDLL('libcupti.so.13'); cupti.cuptiActivityFlushAll(0);"
            " cupti.wait_until_disabled()",
        )
        assert len(_drain(source)) == 0
        health = source.health()
    assert (health.seen, health.dropped) == (0, 0)


def test_processes_are_told_apart_and_share_their_devices(injected: dict[str, str], rings: Path) -> None:
    """A GPU and an instance of a divided one, each known by its UUID in whatever process."""
    with cuda_ring_source(rings) as source:
        _run(injected)
        _run(injected)
        batch = _drain(source)
    assert np.bincount(batch.process).tolist() == [3, 3]
    assert source.devices == ["NVIDIA H100", "NVIDIA H100"]
    for process in range(2):
        assert batch.device[batch.process == process].tolist() == [0, 1, 0]
    for number, uuid in enumerate(
        ("GPU-5a000000-0000-0000-0000-000000000000", "MIG-00000000-0000-0000-0000-000000000077")
    ):
        assert source.device_id("NVIDIA H100", f"NVIDIA H100\x1f{uuid}") == number


def test_child_after_fork_and_exec_has_a_ring_of_its_own(injected: dict[str, str], rings: Path) -> None:
    with cuda_ring_source(rings) as source:
        _run(injected, PARENT)
        assert np.bincount(_drain(source).process).tolist() == [3, 3]
        assert source.writers == 0
    assert not list(rings.glob("*.ring"))


def test_program_in_a_pid_namespace_of_its_own_is_captured(injected: dict[str, str], rings: Path) -> None:
    unshare = shutil.which("unshare")
    apart = [unshare or "", "--pid", "--fork", "--user", "--map-current-user"]
    trial = [*apart, "true"]
    if unshare is None or subprocess.run(trial, check=False, capture_output=True, timeout=300).returncode:
        pytest.skip("this machine lets nobody make a PID namespace")
    with cuda_ring_source(rings) as source:
        _run(injected, PROGRAM, *apart)
        assert len(_drain(source)) == 3
        assert source.writers == 0


def _writer(rings: Path, name: str, *devices: str) -> RingWriter:
    rings.mkdir(mode=0o700, exist_ok=True)
    writer = RingWriter(rings / f"{name}.ring", records=256)
    writer.add_name(KERNEL_NAME, "gemm")
    for device in devices:
        writer.add_name(DEVICE_NAME, device)
    return writer


def _records(*correlations: int, device: int = 0) -> np.ndarray:  # type: ignore[type-arg]
    records = np.zeros(len(correlations), dtype=RECORD)
    records["correlation"], records["device"] = correlations, device
    return records


def test_each_process_is_brought_into_order_by_itself(rings: Path) -> None:
    first, second = (_writer(rings, name, "NVIDIA A100\x1fGPU-1") for name in "ab")
    with RingSource(rings, vendor="nvidia", source="cupti", hold=3) as source:
        for part in ((2, 1), (4, 6, 3), (5, 7, 8)):
            first.append(_records(*part))
            second.append(_records(*(100 + number for number in part)))
        first.close()
        second.close()
        batch = _drain(source)
    assert source.health().gaps == 0
    for process, start in ((0, 0), (1, 100)):
        mine = batch.correlation[batch.process == process].astype(np.int64)
        assert mine.tolist() == [start + number for number in range(1, 9)]


def test_pause_is_a_gap_behind_all_that_came_before_it(rings: Path) -> None:
    writer = _writer(rings, "a", "NVIDIA A100\x1fGPU-1")
    with RingSource(rings, vendor="nvidia", source="cupti", hold=3) as source:
        writer.append(_records(2, 1, 3, 5, 4))
        source.poll(1)
        source.pause(paused=True)
        writer.append(_records(6, 7, 8))
        source.pause(paused=False)
        writer.append(_records(10, 9, 11, 12, 13, 14))
        writer.close()
        batch = _drain(source)
        health = source.health()
    assert batch.correlation.tolist() == [2, 3, 4, 5, 9, 10, 11, 12, 13, 14]
    assert np.flatnonzero(batch.gap).tolist() == [4]
    assert (health.seen, health.dropped, health.gaps) == (11, 0, 1)


def test_reader_that_is_restarted_counts_what_it_held_and_goes_on(rings: Path) -> None:
    writer = _writer(rings, "a", "NVIDIA A100\x1fGPU-1", "NVIDIA A100\x1fMIG-2")
    with RingSource(rings, vendor="nvidia", source="cupti", hold=3) as source:
        writer.append(_records(2, 1, 3, 4, 5))
        assert _drain(source).correlation.tolist() == [1, 2]
    health = source.health()
    assert (health.seen, health.delivered, health.dropped) == (5, 2, 3)
    writer.append(_records(7, 6, device=1))
    writer.close()
    with RingSource(rings, vendor="nvidia", source="cupti", hold=3) as source:
        batch = _drain(source)
        assert batch.correlation.tolist() == [6, 7]
        assert [source.devices[device] for device in batch.device] == ["NVIDIA A100"] * 2
    assert not list(rings.glob("*.ring"))


def test_a_directory_that_cannot_be_written_is_a_sentence_and_a_plan_that_cannot_a_warning(
    rings: Path,
) -> None:
    rings.mkdir(mode=0o700)
    for name, used in (("reader.lock", False), (".plan", True)):
        (rings / name).mkdir()  # nothing can be written there, whoever asks
        source = RingSource(rings, vendor="nvidia")
        if not used:
            with pytest.raises(SourceError, match="Is a directory"):
                source.open()
            (rings / name).rmdir()
            continue
        with source:
            source.pause(paused=True)
            assert any("no plan: Is a directory" in each for each in source.health().warnings)
