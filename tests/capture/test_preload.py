"""An unmodified OpenCL program writes a ring; the reader survives what processes do to it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import needs
import numpy as np
import pytest

from penrose_ray import compiled
from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.preload import opencl_environment, opencl_ring_source
from penrose_ray.capture.ring import DEVICE_NAME, KERNEL_NAME, MAGIC, RECORD, RingWriter
from penrose_ray.capture.ring_source import RingSource, remove_rings
from penrose_ray.compiled import shared_library
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.capture.source import EventSource

pytest.importorskip("pyopencl")
PROGRAM = """
import os, sys
import pyopencl as cl
context = cl.Context([device for platform in cl.get_platforms() for device in platform.get_devices()][:1])
queue = cl.CommandQueue(context)
program = cl.Program(context, "kernel void one(global int *x) { x[get_global_id(0)]++; }"
                              "kernel void two(global int *x) { x[get_global_id(0)]--; }").build()
buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4096)
for step in range(int(sys.argv[1])):
    program.one(queue, (64,), (16,), buffer)
    program.two(queue, (8, 4), None, buffer)
    queue.finish()
if sys.argv[2] == "kill":
    os.kill(os.getpid(), 9)
"""

IN_STEPS = """
import sys
import pyopencl as cl
context = cl.Context([device for platform in cl.get_platforms() for device in platform.get_devices()][:1])
queue = cl.CommandQueue(context)
kernel = cl.Program(context, "kernel void one() {}").build().one
for line in sys.stdin:
    for step in range(int(line)):
        kernel(queue, (8,), None)
    queue.finish()
    print(int(line), flush=True)
"""


def _drain(source: EventSource) -> EventBatch:
    parts = [source.poll(1000)]
    while len(parts[-1]):
        parts.append(source.poll(1000))
    return EventBatch.concat(parts)


def _run(
    directory: Path, steps: int, end: str = "exit", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    environment = {**opencl_environment(directory), **variables}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(steps), end],
        env=environment,
        check=False,
        capture_output=True,
        timeout=300,
    )


@needs.COMPILER
def test_unmodified_program_is_captured_launch_by_launch(tmp_path: Path) -> None:
    with opencl_ring_source(tmp_path / "rings") as source:
        done = _run(tmp_path / "rings", 50)
        assert done.returncode == 0, done.stderr.decode()
        batch = _drain(source)
        assert [source.names[name] for name in batch.name_id] == ["one", "two"] * 50
        assert batch.seq.tolist() == list(range(100))
        assert batch.grid[:2].tolist() == [[4, 1, 1], [8, 4, 1]]
        assert batch.block[:2].tolist() == [[16, 1, 1], [1, 1, 1]]
        assert np.isnan(batch.counters).all()
        assert len(source.devices) == 1
        assert source.writers == 0


@needs.COMPILER
def test_armed_launches_are_timed_though_the_program_asks_for_no_profiling(tmp_path: Path) -> None:
    with opencl_ring_source(tmp_path / "rings") as source:
        source.arm([3, 40], source.counters)
        _run(tmp_path / "rings", 50)
        batch = _drain(source)
    shown = np.flatnonzero(~np.isnan(batch.counters[:, 0]))
    assert shown.tolist() == [3, 40]
    assert (batch.counters[shown, 0] == batch.end_ns[shown] - batch.start_ns[shown]).all()
    assert (batch.counters[shown, 1] >= 0).all()
    np.testing.assert_allclose(batch.counters[40, 2], 64 * 1000 / batch.counters[40, 0])


@needs.COMPILER
def test_killed_program_leaves_all_it_launched(tmp_path: Path) -> None:
    with opencl_ring_source(tmp_path / "rings") as source:
        assert _run(tmp_path / "rings", 30, "kill").returncode == -signal.SIGKILL
        assert len(_drain(source)) == 60
        assert not list((tmp_path / "rings").glob("*.ring"))


@needs.COMPILER
def test_full_ring_slows_nobody_down_and_is_counted(tmp_path: Path) -> None:
    _run(tmp_path / "rings", 50, PENROSE_RING_RECORDS="32")
    with opencl_ring_source(tmp_path / "rings") as source:
        batch = _drain(source)
        health = source.health()
    assert batch.seq.tolist() == list(range(32))
    assert (health.seen, health.delivered, health.dropped, health.gaps) == (100, 32, 68, 1)


@needs.COMPILER
def test_two_processes_are_told_apart(tmp_path: Path) -> None:
    with opencl_ring_source(tmp_path / "rings") as source:
        _run(tmp_path / "rings", 5)
        _run(tmp_path / "rings", 7)
        assert np.bincount(_drain(source).process).tolist() in ([10, 14], [14, 10])


@needs.COMPILER
def test_program_runs_on_without_a_ring_directory(tmp_path: Path) -> None:
    environment = opencl_environment(tmp_path / "rings")
    (tmp_path / "rings").rmdir()
    command = [sys.executable, "-c", PROGRAM, "3", "exit"]
    done = subprocess.run(command, env=environment, check=False, timeout=300)
    assert done.returncode == 0


@needs.COMPILER
def test_directory_that_others_can_enter_is_refused_by_both_sides(tmp_path: Path) -> None:
    environment = opencl_environment(tmp_path / "rings")
    (tmp_path / "rings").chmod(0o755)
    command = [sys.executable, "-c", PROGRAM, "3", "exit"]
    done = subprocess.run(command, env=environment, check=False, timeout=300)
    assert done.returncode == 0
    assert list((tmp_path / "rings").iterdir()) == []
    with pytest.raises(SourceError, match="not a private directory"):
        opencl_ring_source(tmp_path / "rings").open()


@needs.COMPILER
def test_library_is_compiled_once() -> None:
    first = shared_library("penrose_ray.capture", "opencl_preload")
    stamp = first.stat().st_mtime_ns
    assert shared_library("penrose_ray.capture", "opencl_preload") == first
    assert first.stat().st_mtime_ns == stamp


def test_without_a_compiler_the_error_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiled.shutil, "which", lambda _: None)
    with pytest.raises(SourceError, match="apt-get install gcc libc6-dev"):
        shared_library("penrose_ray.capture", "opencl_preload")


def _writer(directory: Path, name: str = "a", records: int = 64) -> RingWriter:
    directory.mkdir(mode=0o700, exist_ok=True)
    writer = RingWriter(directory / f"{name}.ring", records=records)
    writer.add_name(KERNEL_NAME, "gemm")
    writer.add_name(DEVICE_NAME, "NVIDIA H100\x1fGPU-1")
    return writer


def _records(count: int, **columns: object) -> np.ndarray:  # type: ignore[type-arg]
    records = np.zeros(count, dtype=RECORD)
    for name, value in columns.items():
        records[name] = value
    return records


def test_reader_that_is_restarted_goes_on_where_it_was(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "rings")
    with RingSource(tmp_path / "rings", vendor="nvidia") as source:
        writer.append(_records(5, correlation=range(1, 6)))
        assert _drain(source).correlation.tolist() == [1, 2, 3, 4, 5]
    writer.append(_records(3, correlation=range(6, 9)))
    with RingSource(tmp_path / "rings", vendor="nvidia") as source:
        assert _drain(source).correlation.tolist() == [6, 7, 8]
        assert source.devices == ["NVIDIA H100"]
    writer.close()


def test_second_reader_of_a_directory_is_refused(tmp_path: Path) -> None:
    with RingSource(tmp_path / "rings", vendor="x"), pytest.raises(SourceError, match="Another client reads"):
        RingSource(tmp_path / "rings", vendor="x").open()


def test_record_under_the_pen_of_a_killed_writer_does_not_count(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "rings")
    writer.append(_records(2))
    writer._records[2] = _records(1, name=77)[0]
    writer.abandon()
    with RingSource(tmp_path / "rings", vendor="x") as source:
        assert len(_drain(source)) == 2
        assert source.writers == 0


def test_unknown_name_number_is_called_unknown(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "rings")
    writer.append(_records(2, name=[0, 9]))
    with RingSource(tmp_path / "rings", vendor="x") as source:
        batch = _drain(source)
        assert [source.names[name] for name in batch.name_id] == ["gemm", "unknown"]
    writer.close()


@pytest.mark.parametrize("content", [b"", b"another program's file" * 100, MAGIC + bytes(9000)])
def test_file_that_is_no_ring_is_named_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rings").mkdir(mode=0o700)
    (tmp_path / "rings" / "x.ring").write_bytes(content)
    with RingSource(tmp_path / "rings", vendor="x") as source:
        assert len(source.poll(10)) == 0
        assert "is not a whole ring of this user" in source.health().warnings[0]


def test_ring_of_another_version_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "rings").mkdir(mode=0o700)
    (tmp_path / "rings" / "x.ring").write_bytes(b"PENROSE-RING-01\x00" + bytes(9000))
    with RingSource(tmp_path / "rings", vendor="x") as source:
        assert len(source.poll(10)) == 0
        (warning,) = source.health().warnings
    assert "x.ring is a ring of format 01, and this client reads format 02" in warning
    assert "start it again as `penrose client env` says" in warning
    assert (tmp_path / "rings" / "x.ring").exists()


@needs.COMPILER
def test_paused_program_notes_nothing_and_goes_on_behind_a_gap(tmp_path: Path) -> None:
    environment = opencl_environment(tmp_path / "rings")
    with (
        opencl_ring_source(tmp_path / "rings") as source,
        subprocess.Popen(
            [sys.executable, "-c", IN_STEPS], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as program,
    ):
        assert program.stdin is not None
        assert program.stdout is not None

        def steps(count: int) -> None:
            program.stdin.write(b"%d\n" % count)
            program.stdin.flush()
            assert select.select([program.stdout], [], [], 300)[0], f"no answer to {count} steps"
            assert program.stdout.readline() == b"%d\n" % count

        source.arm(range(300), source.counters)
        steps(100)
        assert len(_drain(source)) == 100
        spent_ns = source.spent_ns
        assert spent_ns > 0
        source.pause(paused=True)
        steps(1000)
        assert len(_drain(source)) == 0
        assert source.spent_ns == spent_ns
        source.pause(paused=False)
        steps(100)
        program.communicate(timeout=300)
        batch = _drain(source)
        health = source.health()
    assert batch.seq.tolist() == list(range(100, 200))
    assert np.flatnonzero(batch.gap).tolist() == [0]
    assert np.isfinite(batch.counters[:, 0]).all()
    assert (health.seen, health.dropped, health.gaps) == (200, 0, 1)


@needs.COMPILER
def test_program_that_starts_in_a_pause_is_paused_from_its_first_launch(tmp_path: Path) -> None:
    with opencl_ring_source(tmp_path / "rings") as source:
        source.arm([3], source.counters)
        source.pause(paused=True)
        _run(tmp_path / "rings", 50)
        assert len(_drain(source)) == 0
        source.pause(paused=False)
        _run(tmp_path / "rings", 50)
        assert len(_drain(source)) == 100
        assert source.health().seen == 100


def test_pause_of_a_reader_that_has_gone_ends_with_the_next_one(tmp_path: Path) -> None:
    writer = _writer(tmp_path / "rings")
    with RingSource(tmp_path / "rings", vendor="x") as source:
        writer.append(_records(2))
        source.pause(paused=True)
        writer.append(_records(5))
    with RingSource(tmp_path / "rings", vendor="x") as source:
        before_ns = source.spent_ns
        writer.append(_records(3))
        batch = _drain(source)
        assert batch.gap.tolist() == [True, False, False]
        assert before_ns == 0 < source.spent_ns
    writer.close()


def test_rings_can_be_removed_to_the_last_trace(tmp_path: Path) -> None:
    _writer(tmp_path / "rings", "a").close()
    _writer(tmp_path / "rings", "b").abandon()
    assert remove_rings(tmp_path / "rings") == 2
    assert not (tmp_path / "rings").exists()


@needs.COMPILER
def test_child_after_fork_and_exec_has_a_ring_of_its_own(tmp_path: Path) -> None:
    nested = (
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {PROGRAM!r}, '4', 'exit']))"
    )
    with opencl_ring_source(tmp_path / "rings") as source:
        environment = opencl_environment(tmp_path / "rings", os.environ)
        command = [sys.executable, "-c", nested]
        assert subprocess.run(command, env=environment, check=False, timeout=300).returncode == 0
        assert len(_drain(source)) == 8


@needs.COMPILER
def test_program_in_a_pid_namespace_of_its_own_is_captured(tmp_path: Path) -> None:
    """There the program is process 1 to itself; the lock on its ring tells whether it lives all the same."""
    unshare = shutil.which("unshare")
    apart = [unshare or "", "--pid", "--fork", "--user", "--map-current-user"]
    trial = [*apart, "true"]
    if unshare is None or subprocess.run(trial, check=False, capture_output=True, timeout=300).returncode:
        pytest.skip("this machine lets nobody make a PID namespace")
    with opencl_ring_source(tmp_path / "rings") as source:
        environment = opencl_environment(tmp_path / "rings")
        command = [*apart, sys.executable, "-c", PROGRAM, "6", "kill"]
        subprocess.run(command, env=environment, check=False, timeout=300)
        assert len(_drain(source)) == 12
        assert source.writers == 0
