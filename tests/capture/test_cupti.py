"""CUPTI's records decoded from their layout, and counters from windows."""

from __future__ import annotations

import ctypes
import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.capture import injection
from penrose_ray.capture.cupti_records import (
    device_identity,
    fields_of_objects,
    kernel_batch,
)
from penrose_ray.capture.cupti_source import CuptiSource, counters_for_admins_only, explained
from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.guard import BusyThinner
from penrose_ray.capture.injection import header_flags
from penrose_ray.capture.pm_windows import Windows, values_of_kernels
from penrose_ray.capture.tally import Tally
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_WORDS = ("start", "end", "queued", "device_id", "context_id", "stream_id", "graph_node_id", "correlation_id",
          "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")  # fmt: skip


def test_records_become_columns() -> None:
    """The second record ends before it starts, the third was never timed, the fourth has no name."""
    records = [
        _kernel(7, device_id=0, start=100, end=250, name="gemm"),
        _kernel(8, device_id=1, start=900, end=800, name="relu"),
        _kernel(9, device_id=0, start=0, end=0, name="gemm"),
        _kernel(10, device_id=0, start=500, end=700, name=None),
    ]
    fields, names = fields_of_objects(records)
    tally, table, devices = Tally(), [], []
    batch = kernel_batch(
        fields,
        names,
        name_id=lambda name: table.append(name) or len(table) - 1,  # type: ignore[func-returns-value]
        device=lambda number: devices.append(number) or number,  # type: ignore[func-returns-value]
        width=3,
        tally=tally,
    )
    assert table == ["gemm", "relu", "gemm", ""]
    assert devices == [0, 1, 0, 0]
    assert batch.correlation.tolist() == [7, 8, 9, 10]
    assert batch.grid.tolist() == [[4, 2, 1]] * 4
    np.testing.assert_equal(batch.counters[:, 0], [150, np.nan, np.nan, 200])
    assert batch.end_ns.tolist() == [250, 0, 0, 700]
    assert tally.bad_timestamps == 1


def test_cupti_pythons_objects_are_read_by_their_layout() -> None:
    cupti = pytest.importorskip("cupti.cupti", exc_type=ImportError)
    texts = [ctypes.create_string_buffer(text) for text in (b"gemm", b"relu")]
    records = np.zeros(3, cupti.activity_kernel13_dtype)
    records["name"] = [ctypes.addressof(texts[place]) for place in (0, 1, 0)]
    for place, word in enumerate(_WORDS):
        records[word] = np.arange(3) + 10 * place + 1
    objects = [cupti.ActivityKernel13.from_data(records[place : place + 1]) for place in range(3)]
    fields, names = fields_of_objects(objects)
    assert names == ["gemm", "relu", "gemm"]
    for place, word in enumerate(_WORDS):
        assert fields[word].tolist() == [10 * place + 1, 10 * place + 2, 10 * place + 3], word


def _kernel(correlation: int, **changed: int | str | None) -> SimpleNamespace:
    zeros = dict.fromkeys(_WORDS, 0)
    size = {"grid_x": 4, "grid_y": 2, "grid_z": 1, "block_x": 256}
    return SimpleNamespace(**{**zeros, **size, "correlation_id": correlation, **changed})


def _kernels(count: int, first: int = 1, **changed: int) -> list[SimpleNamespace]:
    return [
        _kernel(n, **{"start": n * 100, "end": n * 100 + 60, "name": f"k{n % 2}", **changed})
        for n in range(first, first + count)
    ]


class RecordedCupti(CuptiSource):
    """The source without a driver: the test hands it the buffers."""

    def _start(self) -> None:
        pass

    def _stop(self) -> None:
        self._order.hand_on(last=True)


class RecordedWindows:
    """Windows as cupti.pm_sampling delivers them."""

    metrics = (Counter("dram_use", "%", "cupti-pm", "nvidia"),)
    device = 0

    def __init__(self) -> None:
        self._fresh = [(110, 130, [40.0]), (130, 150, [60.0]), (155, 175, [99.0]), (210, 250, [10.0])]

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def windows(self) -> Iterable[tuple[int, int, Sequence[float]]]:
        fresh, self._fresh = self._fresh, []
        return fresh


def test_buffers_come_out_in_launch_order_and_once() -> None:
    kernels = _kernels(6)
    with RecordedCupti(hold=2) as source:
        source.completed([kernels[2], kernels[0], kernels[1]])
        assert source.poll(10).correlation.tolist() == [1]
        source.completed([kernels[2], kernels[4], kernels[3], kernels[5]])
        assert source.poll(10).correlation.tolist() == [2, 3, 4]
        source.stop()
        assert source.poll(10).correlation.tolist() == [5, 6]
        assert source.health().duplicates == 1


def _copies(count: int, first: int) -> list[SimpleNamespace]:
    zeros = dict.fromkeys(("queued", "device_id", "context_id", "stream_id", "graph_node_id"), 0)
    return [
        SimpleNamespace(**zeros, copy_kind=1, correlation_id=n, start=n * 100, end=n * 100 + 9)
        for n in range(first, first + count)
    ]


@pytest.mark.parametrize(("length", "kept_share"), [(60, 1.0), (79, 1.0), (90, 0.55), (100, 0.1)])
def test_copies_are_thinned_while_kernels_keep_the_device_busy(length: int, kept_share: float) -> None:
    """Kernels start every 100 ns; above 80 % of that time fewer copies come, with more weight each."""
    kernels, rows = _kernels(4000), 4000
    for each in kernels:
        each.end = each.start + length
    with RecordedCupti(hold=0, thinner=BusyThinner(np.random.default_rng(0))) as source:
        source.completed([*kernels, *_copies(rows, first=5001)])
        batch = source.poll(1 << 20)
    copies = batch.kind == KernelKind.COPY
    assert (batch.kind == KernelKind.KERNEL).sum() == 4000
    assert {source.names[name] for name in batch.name_id[copies]} == {"memory copy"}
    assert copies.sum() / rows == pytest.approx(kept_share, abs=4 * np.sqrt(0.25 / rows) * (kept_share < 1))
    np.testing.assert_allclose(batch.weight[copies], 1 / kept_share, rtol=0.01)


def test_copies_and_fills_are_left_out_unless_asked_for() -> None:
    fill = SimpleNamespace(memory_kind=1, value=0, correlation_id=9, start=1, end=2)
    with RecordedCupti(hold=0) as source:
        source.completed([*_kernels(2), *_copies(2, first=5), fill])
        assert len(source.poll(10)) == 2


def test_windows_inside_an_armed_kernel_give_its_counters() -> None:
    with RecordedCupti(sampler=RecordedWindows(), hold=0) as source:
        source.arm([0, 1], source.counters)
        source.completed(_kernels(3))
        batch = source.poll(10)
    np.testing.assert_equal(batch.counters, [[60, np.nan, 50], [60, np.nan, 10], [np.nan] * 3])


def test_window_that_two_kernels_touch_counts_for_neither() -> None:
    windows = Windows(np.array([0, 10, 20]), np.array([10, 20, 30]), np.array([[1.0], [5.0], [9.0]]))
    values = values_of_kernels(windows, np.array([0, 25]), np.array([30, 40]))
    np.testing.assert_equal(values, [[3.0], [np.nan]])


def test_windows_of_one_device_say_nothing_of_kernels_of_another() -> None:
    with RecordedCupti(sampler=RecordedWindows(), hold=0) as source:
        source.arm([0, 1, 2], source.counters)
        source.completed([*_kernels(1), *_kernels(1, first=2, device_id=1, start=105, end=155)])
        batch = source.poll(10)
    np.testing.assert_equal(batch.counters[:, 2], [50, np.nan])


@pytest.mark.parametrize("late", [False, True], ids=["handed on before", "held back"])
def test_window_that_a_kernel_of_another_batch_touches_counts_for_neither(late: bool) -> None:  # noqa: FBT001
    """Kernel 2 runs while kernel 1's second window does, on another stream."""
    touching = _kernels(1, first=2, start=135, end=145)
    with RecordedCupti(sampler=RecordedWindows(), hold=1 if late else 0) as source:
        source.arm([0, 1], source.counters)
        if late:
            source.completed([*_kernels(1), *touching])
        else:
            source.completed(_kernels(1, start=135, end=145))
            source.poll(10)
            source.completed(_kernels(1, first=2, start=100, end=160))
        batch = source.poll(10)
    np.testing.assert_equal(batch.counters[:, 2], [40])


def test_kernel_shorter_than_a_window_has_no_counters() -> None:
    windows = Windows(np.array([0, 10]), np.array([10, 20]), np.array([[1.0], [5.0]]))
    assert np.isnan(values_of_kernels(windows, np.array([2, 0]), np.array([8, 0]))).all()


@pytest.mark.parametrize(
    ("error", "cause", "remedy"),
    [
        (RuntimeError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED (39)"), "there can be one", "End it"),
        (PermissionError("Insufficient privileges for PM sampling"), "administrators only", "NVreg_Restrict"),
        (RuntimeError("CUPTI_ERROR_HARDWARE_BUSY"), "owns the counters", "dcgmi profile --pause"),
        (RuntimeError("something new"), "something new", "docs/capture.md"),
    ],
)
def test_refusals_say_what_to_do(error: Exception, cause: str, remedy: str) -> None:
    found = explained(error)
    assert cause in found.message
    assert remedy in found.remedy


def test_probe_without_a_driver_gives_the_reason() -> None:
    capabilities = CuptiSource().probe()
    if capabilities.available:
        pytest.skip("this machine has a GPU")
    assert any(word in capabilities.reasons[0] for word in ("not installed", "driver"))


@pytest.mark.parametrize(
    ("text", "expected"), [("RmProfilingAdminOnly: 1\n", True), ("RmProfilingAdminOnly: 0\n", False)]
)
def test_drivers_setting_of_counters_is_read(tmp_path: Path, text: str, expected: bool) -> None:  # noqa: FBT001
    (tmp_path / "params").write_text(f"ResmanDebugLevel: 4294967295\n{text}")
    assert counters_for_admins_only(tmp_path / "params") is expected
    assert not counters_for_admins_only(tmp_path / "missing")


def test_missing_headers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(injection, "_folders", lambda: iter(()))
    with pytest.raises(SourceError, match=r"cuda.h is not found.*CUDA_HOME"):
        header_flags()


def test_sampling_buffer_that_ran_over_costs_counters_and_no_launch() -> None:
    class Overflowing(RecordedWindows):
        def windows(self) -> Iterable[tuple[int, int, Sequence[float]]]:
            raise MemoryError("Record overflow in the hardware buffer.")

    with RecordedCupti(sampler=Overflowing(), hold=0) as source:
        source.completed(_kernels(3))
        assert len(source.poll(10)) == 3
        assert "sampling buffer was full" in source.health().warnings[0]


@pytest.mark.parametrize(
    ("mig", "instance", "expected"),
    [
        (0, bytes(16), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (1, bytes(range(16, 32)), "MIG-10111213-1415-1617-1819-1a1b1c1d1e1f"),
        (1, bytes(16), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f/3/1"),
    ],
)
def test_devices_are_known_by_the_uuids_of_nvidias_tools(mig: int, instance: bytes, expected: str) -> None:
    cupti = pytest.importorskip("cupti.cupti", exc_type=ImportError)
    record = np.zeros(1, dtype=cupti.activity_device5_dtype)
    record["uuid"] = np.void(bytes(range(16)))
    record["mig_uuid"] = np.void(instance)
    record["is_mig_enabled"] = mig
    record["gpu_instance_id"], record["compute_instance_id"] = 3, 1
    assert device_identity(cupti.ActivityDevice5.from_data(record)) == expected


def test_sampler_calls_cupti_python_as_it_wants_to_be_called() -> None:
    pm_sampling = pytest.importorskip("cupti.pm_sampling", exc_type=ImportError)
    collector = inspect.signature(pm_sampling.Collector)
    assert collector.bind(0)
    configure = inspect.signature(pm_sampling.Collector.configure)
    assert configure.bind(None, metrics=["dram__throughput.avg"], sampling_interval=20_000)
    assert {"start_timestamp", "end_timestamp", "metric_values"} <= set(pm_sampling.Sample.__annotations__)
