"""Live capture of the OpenCL launches of this process, through pyopencl's enqueue function.

Every launch costs a few attribute reads; profiling events are read of armed launches only, and by the thread
that polls. The program runs in one thread, `poll` in another.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from penrose_ray.capture.armed import ArmedLaunches
from penrose_ray.capture.events import Capabilities, EventBatch, SourceHealth
from penrose_ray.capture.opencl_device import opencl_counters, pick_device, profiled_queue, vendor_of
from penrose_ray.capture.tally import Tally
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penrose_ray.histogram import Counter

__all__ = ["OpenCLSource", "opencl_counters", "pick_device", "profiled_queue"]

DURATION, QUEUE_DELAY, WORK_RATE = range(3)
_MOST_SITES = 1 << 16


class _Special(NamedTuple):
    """A pending launch that is measured or follows a gap; ordinary ones are just the number of their site."""

    site: int
    seq: int
    gap: bool
    event: Any
    columns: tuple[int, ...]


class OpenCLSource:
    """EventSource over pyopencl in this process; a context manager that restores pyopencl at its end.

    Args:
        capacity: launches that may wait for `poll`; further ones are dropped and counted.
        vendor: fixes the counters' vendor; by default that of the picked device.
        arm_all: measure every launch, for a recording.
    """

    def __init__(self, *, capacity: int = 65_536, vendor: str | None = None, arm_all: bool = False) -> None:
        self.names: list[str] = []
        self.devices: list[str] = []
        self._capacity = capacity
        self._vendor = vendor
        self._unasked = (DURATION, QUEUE_DELAY, WORK_RATE) if arm_all else ()
        self._pending: deque[int | _Special] = deque()
        self._next_polled = 0
        self._lock = threading.Lock()
        self._tally = Tally()
        self._name_ids: dict[str, int] = {}
        self._sites: dict[Any, int] = {}
        """Number of each launch site: a kernel on a queue with a geometry."""
        self._rows: list[tuple[int, ...]] = []
        """Columns of each site: name, stream, device, context, grid, block."""
        self._first_row = 0
        self._stale = (0, 0)
        """Rows below the first number are of no use once the launch of the second number was polled."""
        self._queues: dict[Any, tuple[int, int, int]] = {}
        self._streams = 0
        self._contexts: dict[int, int] = {}
        self._device_ids: dict[int, int] = {}
        self._gap = False
        self._active = False
        self._stopped = False
        self._armed = ArmedLaunches(())
        self._offered: tuple[Counter, ...] | None = None
        self._original: Callable[..., Any] | None = None
        self._hook: Callable[..., Any] | None = None

    @property
    def counters(self) -> tuple[Counter, ...]:
        """Duration, queue delay and work rate, of this device's vendor."""
        if self._vendor is None:
            try:
                self._vendor = vendor_of(pick_device())
            except SourceError:
                return opencl_counters("unknown")
        return opencl_counters(self._vendor)

    @property
    def exhausted(self) -> bool:
        """True once stopped or closed and everything was delivered."""
        return self._stopped and not self._pending

    def probe(self) -> Capabilities:
        """Whether an OpenCL device is here."""
        try:
            pick_device()
        except SourceError as error:
            return Capabilities(available=False, per_kernel_counters=False, reasons=(str(error),))
        return Capabilities(available=True, per_kernel_counters=True)

    def open(self) -> None:
        """Hook pyopencl's enqueue function.

        Raises:
            SourceError: no OpenCL here, or this source is open already.
        """
        if self._active:
            raise SourceError(
                "This OpenCL source is open already.", remedy="Close it first, or make another."
            )
        pick_device()
        self._stopped = False
        self._active = True
        self._install()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _install(self) -> None:
        modules = _modules()
        self._original = modules[0].enqueue_nd_range_kernel
        self._hook = self._hooked(modules[0].enqueue_nd_range_kernel)
        for module in modules:
            module.enqueue_nd_range_kernel = self._hook

    def _hooked(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The enqueue function that notes launches: what it costs, every launch of the program pays."""
        lock, tally, sites, append = self._lock, self._tally, self._sites, self._pending.append
        pending, capacity, unasked = self._pending, self._capacity, self._unasked

        def enqueue(
            queue: Any,  # noqa: ANN401 - pyopencl's objects
            kernel: Any,  # noqa: ANN401
            size: Any,  # noqa: ANN401
            local: Any = None,  # noqa: ANN401
            offset: Any = None,  # noqa: ANN401
            wait_for: Any = None,  # noqa: ANN401
            g_times_l: Any = False,  # noqa: ANN401, FBT002
            allow_empty_ndrange: Any = False,  # noqa: ANN401, FBT002
        ) -> Any:  # noqa: ANN401
            event = original(queue, kernel, size, local, offset, wait_for, g_times_l, allow_empty_ndrange)
            if not self._active:
                return event
            with lock:
                try:
                    site = sites[kernel.penrose_name, queue, size, local, g_times_l]
                except (AttributeError, KeyError, TypeError):
                    site = self._site(kernel, queue, tuple(size), local and tuple(local), g_times_l)
                seq = tally.seen
                tally.seen = seq + 1
                if len(pending) >= capacity:
                    self._drop(1)
                elif seq >= self._armed.next or unasked or self._gap:
                    append(self._special(site, seq, event))
                else:
                    append(site)
            return event

        return enqueue

    def _special(self, site: int, seq: int, event: Any) -> _Special:  # noqa: ANN401 - a pyopencl event
        asked = {column for _, columns in self._armed.take(seq + 1) for column in columns}
        columns = self._unasked or tuple(asked)
        gap, self._gap = self._gap, False
        return _Special(site, seq, gap, event if columns else None, columns)

    def _site(self, kernel: Any, queue: Any, size: tuple[int, ...], local: Any, in_groups: bool) -> int:  # noqa: ANN401, FBT001 - pyopencl's
        """Number of a launch site that is new, or whose sizes came as lists."""
        name = kernel.penrose_name = kernel.function_name
        key = (name, queue, size, local, in_groups)
        if key in self._sites:
            return self._sites[key]
        if len(self._sites) >= _MOST_SITES:
            self._sites.clear()
            self._queues.clear()
            self._stale = (self._first_row + len(self._rows), self._tally.seen)
        name_id = self._name_ids.setdefault(name, len(self.names))
        if name_id == len(self.names):
            self.names.append(name)
        grid, block = _shape(size, local, in_groups)
        self._rows.append((name_id, *(self._queues.get(queue) or self._place(queue)), *grid, *block))
        self._sites[key] = number = self._first_row + len(self._rows) - 1
        return number

    def _drop(self, launches: int) -> None:
        self._tally.dropped += launches
        self._tally.gaps += not self._gap
        self._gap = True

    def _place(self, queue: Any) -> tuple[int, int, int]:  # noqa: ANN401 - a pyopencl queue
        """Stream, device and context of a queue; it is held, so that no other one gets its handle."""
        device = self._device_ids.setdefault(queue.device.int_ptr, len(self.devices))
        if device == len(self.devices):
            self.devices.append(queue.device.name)
        context = self._contexts.setdefault(queue.context.int_ptr, len(self._contexts))
        self._queues[queue] = place = (self._streams, device, context)
        self._streams += 1
        return place

    def arm(self, launches: Sequence[int], counters: Sequence[Counter]) -> None:
        """Time coming launches by their profiling events."""
        offered = self.counters
        with self._lock:
            if self._offered is None:
                self._offered, self._armed = offered, ArmedLaunches(offered)
            self._tally.late_arms += self._armed.add(launches, counters, first=self._tally.seen)

    def poll(self, max_events: int) -> EventBatch:
        """Launches in order; an armed one holds back what follows until its times are known."""
        pending = self._pending
        taken = [pending.popleft() for _ in range(min(len(pending), max_events))]
        special = [(row, launch) for row, launch in enumerate(taken) if isinstance(launch, _Special)]
        for row, launch in special:
            if not self._ready(launch, len(taken)):
                pending.extendleft(reversed(taken[row:]))
                taken, special = taken[:row], [each for each in special if each[0] < row]
                break
        with self._lock:
            self._tally.delivered += len(taken)
        return self._batch(taken, special) if taken else EventBatch.empty(len(self.counters))

    def _ready(self, launch: _Special, taken: int) -> bool:
        if launch.event is None or self._stopped or (len(self._pending) + taken) * 2 >= self._capacity:
            return True
        return bool(launch.event.command_execution_status <= 0)

    def _batch(self, taken: list[int | _Special], special: list[tuple[int, _Special]]) -> EventBatch:
        rows = len(taken)
        seq = np.arange(self._next_polled, self._next_polled + rows)
        counters = np.full((rows, len(self.counters)), np.nan)
        times = np.zeros((rows, 2), dtype=np.int64)
        gap = np.zeros(rows, dtype=np.bool_)
        numbers: list[Any] = taken
        for row, launch in special:
            numbers[row] = launch.site
            seq[row:] += launch.seq - seq[row]
            gap[row] = launch.gap
        with self._lock:
            table = np.array(self._rows, dtype=np.uint32)
        site = table[np.array(numbers) - self._first_row]
        for row, launch in special:
            if launch.event is not None:
                self._measure(launch, site[row, 4:], counters[row], times[row])
        self._next_polled = int(seq[-1]) + 1
        self._forget_stale()
        return EventBatch.of(
            rows,
            len(self.counters),
            seq=seq,
            name_id=site[:, 0],
            process=os.getpid(),
            stream=site[:, 1],
            device=site[:, 2],
            context=site[:, 3],
            correlation=seq,
            start_ns=times[:, 0],
            end_ns=times[:, 1],
            grid=site[:, 4:7],
            block=site[:, 7:10],
            counters=counters,
            gap=gap,
        )

    def _forget_stale(self) -> None:
        with self._lock:
            row, launch = self._stale
            if row > self._first_row and self._next_polled > launch:
                del self._rows[: row - self._first_row]
                self._first_row = row

    def _measure(self, launch: _Special, shape: NDArray[np.uint32], counters: Any, times: Any) -> None:  # noqa: ANN401 - row views
        import pyopencl as cl  # noqa: PLC0415 - optional extra `opencl`

        try:
            profile = launch.event.profile
            queued, start, end = profile.queued, profile.start, profile.end
        except cl.Error:
            self._tally.unread += 1
            self._tally.warn("Launches without times: make queues with profiling enabled (profiled_queue).")
            return
        if end < start or start < queued or start == 0:
            self._tally.bad_timestamps += 1
            return
        duration = end - start
        rate = math.prod(shape.tolist()) * 1000 / duration if duration else math.nan
        values = (duration, start - queued, rate)
        for column in launch.columns:
            counters[column] = values[column]
        times[:] = start, end

    def stop(self) -> None:
        """Unhook; what is pending can still be polled, then the source is exhausted."""
        if self._active:
            self._active = False
            self._restore()
        self._stopped = True

    def _restore(self) -> None:
        for module in _modules():
            if module.enqueue_nd_range_kernel is self._hook:  # a later hook stays; ours passes through
                module.enqueue_nd_range_kernel = self._original
        self._original = self._hook = None

    def close(self) -> None:
        """Unhook and drop what is pending."""
        self.stop()
        with self._lock:
            if self._pending:
                self._drop(len(self._pending))
                self._pending.clear()
            self._next_polled = self._tally.seen
            self._sites.clear()
            self._queues.clear()
            self._rows.clear()
            self._stale = (0, 0)

    def ended(self) -> Sequence[int]:
        """None: the one process that is watched is this one."""
        return []

    def health(self) -> SourceHealth:
        """The account so far."""
        with self._lock:
            return self._tally.snapshot()


def _modules() -> tuple[Any, Any]:
    """Where pyopencl and the launchers that it generates look up the enqueue function."""
    import pyopencl as cl  # noqa: PLC0415 - optional extra `opencl`

    return cl._cl, cl  # noqa: SLF001 - see above


def _shape(size: tuple[int, ...], local: tuple[int, ...] | None, in_groups: bool) -> list[list[int]]:  # noqa: FBT001 - a column
    """Grid and block; an unknown local size counts as 1, so that grid x block stays the work-items."""
    grid = [*size, 1, 1][:3]
    block = [1, 1, 1] if local is None else [*local, 1, 1][:3]
    return [
        grid if in_groups else [-(-item // width) for item, width in zip(grid, block, strict=True)],
        block,
    ]
