"""Live capture of this process' CUDA kernels by CUPTI (cupti-python, optional extra).

CUPTI allows one subscriber a process: under Nsight, compute-sanitizer or another profiler it refuses. Buffers
belong to cupti-python and are never freed while CUPTI may write to them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from penrose_ray.capture.cupti_records import device_identity, fields_of_objects, kernel_batch, kind_of
from penrose_ray.capture.events import Capabilities, EventBatch, KernelKind
from penrose_ray.capture.launch_order import COMPLETION_SPREAD, LaunchOrder
from penrose_ray.capture.pm_windows import Windows, values_of_kernels
from penrose_ray.capture.queued import DEFAULT_CAPACITY, QueuedSource
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penrose_ray.capture.guard import BusyThinner

BUFFER_BYTES = 4 << 20
_MOST_WINDOWS = 1 << 20
_PARAMETERS = Path("/proc/driver/nvidia/params")
_ADMIN_ONLY = (
    "Counters are for administrators only (RmProfilingAdminOnly: 1): put `options nvidia"
    " NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/nvidia-profiling.conf and reboot, or give"
    " the process CAP_SYS_ADMIN. Without it the stream and durations work, DRAM and tensor use stay NaN."
)
_REASONS = {
    "MULTIPLE_SUBSCRIBERS": "another profiler uses CUPTI in this process, and there can be one: end it",
    "INSUFFICIENT_PRIVILEGES": _ADMIN_ONLY,
    "VIRTUALIZED_DEVICE": "the GPU is virtual and its profiling is off: enable it on the host",
    "HARDWARE_BUSY": "another process owns the counters: pause it, DCGM with `dcgmi profile --pause`",
    "NotSupported": "no NVIDIA driver is installed: install it, or run on a machine with a GPU",
}


class WindowSampler(Protocol):
    """What samples a device's counters: cupti.pm_sampling's Collector behind a common face."""

    metrics: tuple[Counter, ...]
    device: int
    """CUDA number of the device whose counters these are."""

    def start(self) -> None:
        """Begin sampling."""
        ...

    def stop(self) -> None:
        """End sampling."""
        ...

    def windows(self) -> Iterable[tuple[int, int, Sequence[float]]]:
        """Windows since the last call: start, end, one value for each metric."""
        ...


class PmSampler:
    """Windows of one device from cupti.pm_sampling.

    Args:
        metrics: a counter for each CUPTI metric; `dram__throughput.avg.pct_of_peak_sustained_elapsed` is one.
        device: CUDA device number.
        interval_ns: length of a window.
    """

    def __init__(self, metrics: dict[str, Counter], *, device: int = 0, interval_ns: int = 20_000) -> None:
        self.metrics = tuple(metrics.values())
        self._names = list(metrics)
        self.device = device
        self._interval_ns = interval_ns
        self._collector: Any = None

    def start(self) -> None:
        """Begin sampling; SourceError where the counters are not to be had."""
        from cupti import pm_sampling  # noqa: PLC0415 - optional extra `cupti`

        self._collector = pm_sampling.Collector(self.device)
        try:
            self._collector.enable()
            self._collector.configure(metrics=self._names, sampling_interval=self._interval_ns)
            self._collector.start()
        except Exception as error:
            self._collector = None
            raise explained(error) from error

    def stop(self) -> None:
        """End sampling."""
        if self._collector is not None:
            self._collector.stop()
            self._collector.disable()
            self._collector = None

    def windows(self) -> Iterable[tuple[int, int, Sequence[float]]]:
        """Windows since the last call."""
        if self._collector is None:
            return []
        samples = self._collector.decode()
        return [(each.start_timestamp, each.end_timestamp, each.metric_values) for each in samples]


def explained(error: Exception) -> SourceError:
    """CUPTI's error with what to do about it."""
    text = f"{type(error).__name__} {error}"
    for word, reason in _REASONS.items():
        if word.lower() in text.lower().replace(" ", "_") or word in text:
            cause, _, remedy = reason.partition(": ")
            return SourceError(
                f"CUPTI cannot be used: {cause}.", remedy=f"{remedy[:1].upper()}{remedy[1:].rstrip('.')}."
            )
    return SourceError(f"CUPTI cannot be used: {text}.", remedy="See docs/capture.md, CUPTI.")


class CuptiSource(QueuedSource):
    """Every kernel of this process; counters of windows for kernels that are long enough.

    Args:
        sampler: windows of one device, for DRAM and tensor use; none gives durations only.
        capacity: launches that may wait for `poll`.
        hold: launches that wait for records of other streams, which complete later.
        thinner: copies and fills of memory are delivered too, fewer of them while kernels keep the device
            over 80 % busy; none leaves them out.
    """

    def __init__(
        self,
        *,
        sampler: WindowSampler | None = None,
        capacity: int = DEFAULT_CAPACITY,
        hold: int = COMPLETION_SPREAD,
        thinner: BusyThinner | None = None,
    ) -> None:
        metrics = sampler.metrics if sampler else ()
        base = (Counter("duration", "ns", "cupti", "nvidia"), Counter("queue_delay", "ns", "cupti", "nvidia"))
        super().__init__((*base, *metrics), capacity=capacity)
        self._sampler = sampler
        self._windows = Windows.empty(len(metrics))
        self._before = EventBatch.empty(0)
        """The latest kernels that were handed on: windows may touch them still."""
        self._order = LaunchOrder(
            self.queue, self.tally, hold=hold, finish=self._with_windows, thinner=thinner
        )
        self._kinds = ("CONCURRENT_KERNEL", "MEMCPY", "MEMSET") if thinner else ("CONCURRENT_KERNEL",)
        self._models: dict[int, tuple[str, str]] = {}
        self._cupti: Any = None

    def probe(self) -> Capabilities:
        """Whether CUPTI answers, and whether its counters are allowed."""
        try:
            from cupti import cupti  # noqa: PLC0415 - optional extra `cupti`

            cupti.get_timestamp()
        except ImportError:
            reason = 'cupti-python is not installed: install it with pip install "penrose-ray[cupti]".'
            return Capabilities(available=False, per_kernel_counters=False, reasons=(reason,))
        except Exception as error:  # noqa: BLE001 - CUPTI's errors have no common base
            return Capabilities(available=False, per_kernel_counters=False, reasons=(str(explained(error)),))
        if counters_for_admins_only() and os.geteuid() != 0:
            return Capabilities(available=True, per_kernel_counters=False, reasons=(_ADMIN_ONLY,))
        return Capabilities(available=True, per_kernel_counters=self._sampler is not None)

    def _start(self) -> None:
        try:
            from cupti import cupti  # noqa: PLC0415 - optional extra `cupti`

            cupti.activity_register_callbacks(lambda: (BUFFER_BYTES, 0), self.completed)
            for kind in ("DEVICE", *self._kinds):
                cupti.activity_enable(cupti.ActivityKind[kind])
        except ImportError as error:
            raise SourceError(
                "cupti-python is not installed.", remedy='Install it with pip install "penrose-ray[cupti]".'
            ) from error
        except Exception as error:
            raise explained(error) from error
        self._cupti = cupti
        if self._sampler:
            self._sampler.start()

    def _stop(self) -> None:
        self._cupti.activity_flush_all(1)
        for kind in self._kinds:
            self._cupti.activity_disable(self._cupti.ActivityKind[kind])
        self._pull(0)
        self._order.hand_on(last=True)
        if self._sampler:
            self._sampler.stop()

    def completed(self, activities: Sequence[Any]) -> None:
        """Take over a buffer that CUPTI has filled; called in a thread of CUPTI's."""
        kinds = [kind_of(each) for each in activities]
        for each in activities:
            if hasattr(each, "uuid") and hasattr(each, "name"):
                self._models[int(each.id)] = (str(each.name), device_identity(each))
        rows = [each for each, kind in zip(activities, kinds, strict=True) if kind is not None]
        if rows:
            fields, names = fields_of_objects(rows)
            self._order.feed(
                kernel_batch(
                    fields,
                    names,
                    name_id=self.name_id,
                    device=self._device,
                    width=len(self.counters),
                    tally=self.tally,
                    kinds=[kind for kind in kinds if kind is not None],
                )
            )

    def _device(self, number: int) -> int:
        model, identity = self._models.get(number, ("unknown", f"cuda {number}"))
        return self.device_id(model, identity)

    def _pull(self, wanted: int) -> None:
        del wanted
        lost = self._dropped()
        if lost:
            self.tally.warn("CUPTI's buffers were full: launches are lost.")
            self._order.lose(lost)
        if self._sampler:
            self._take_windows(self._sampler)
        self._order.hand_on()

    def _take_windows(self, sampler: WindowSampler) -> None:
        try:
            fresh = list(sampler.windows())
        except MemoryError:
            self.tally.warn("The GPU's sampling buffer was full: some kernels have no counters.")
            return
        if fresh:
            start, end, values = zip(*fresh, strict=True)
            later = Windows(np.array(start, dtype=np.int64), np.array(end, dtype=np.int64), np.array(values))
            self._windows = self._windows.joined(later, most=_MOST_WINDOWS)

    def _dropped(self) -> int:
        count = np.zeros(1, dtype=np.uint64)
        if self._cupti is not None:
            self._cupti.activity_get_num_dropped_records(0, 0, count.ctypes.data)
        return int(count[0])

    def _with_windows(self, batch: EventBatch, held: EventBatch | None) -> EventBatch:
        if self._sampler is None or not len(self._windows.start_ns):
            return batch
        device = self._device(self._sampler.device)
        mine = (batch.device == device) & (batch.kind == KernelKind.KERNEL)
        beside = (self._before, held, batch.take(batch.kind != KernelKind.KERNEL))
        others = [each.take(each.device == device) for each in beside if each is not None]
        counters = batch.counters.copy()
        counters[mine, 2:] = values_of_kernels(
            self._windows,
            batch.start_ns[mine],
            batch.end_ns[mine],
            beside=(
                np.concatenate([each.start_ns for each in others]),
                np.concatenate([each.end_ns for each in others]),
            ),
        )
        self._before = batch.take(slice(-COMPLETION_SPREAD, None))
        return batch.replace(counters=counters)


def counters_for_admins_only(parameters: Path = _PARAMETERS) -> bool:
    """Whether the driver keeps counters from ordinary users."""
    try:
        return re.search(r"^RmProfilingAdminOnly:\s*1$", parameters.read_text(), re.MULTILINE) is not None
    except OSError:
        return False
