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
_EVENT = 7
"""Position of the profiling event in a pending launch."""
_MOST_QUEUES = 1024


class _Launch(NamedTuple):
    """A pending launch, read back from the plain tuple that the hook stores."""

    seq: int
    name_id: int
    place: int
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    in_groups: bool
    """The global size counts work-groups."""
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
        self._pending: deque[tuple[Any, ...]] = deque()
        self._lock = threading.Lock()
        self._tally = Tally()
        self._name_ids: dict[str, int] = {}
        self._queues: dict[Any, int] = {}
        self._places: list[tuple[int, int, int]] = []
        """Stream, device and context of each queue."""
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
        lock, tally, pending, queues = self._lock, self._tally, self._pending, self._queues
        append, name_ids, capacity, unasked = pending.append, self._name_ids, self._capacity, self._unasked

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
            try:
                name_id = name_ids[kernel.penrose_name]
            except (AttributeError, KeyError):
                name_id = self._learn(kernel)
            with lock:
                seq = tally.seen
                tally.seen = seq + 1
                if len(pending) >= capacity:
                    self._drop(1)
                    return event
                place = queues.get(queue)
                if place is None:
                    place = self._place(queue)
                columns = self._armed_columns(seq) if seq >= self._armed.next else unasked
                append(
                    (
                        seq,
                        name_id,
                        place,
                        size,
                        local,
                        g_times_l,
                        self._gap,
                        event if columns else None,
                        columns,
                    )
                )
                self._gap = False
            return event

        return enqueue

    def _learn(self, kernel: Any) -> int:  # noqa: ANN401 - a pyopencl kernel
        name = kernel.penrose_name = kernel.function_name
        with self._lock:
            known = self._name_ids.setdefault(name, len(self.names))
            if known == len(self.names):
                self.names.append(name)
            return known

    def _armed_columns(self, seq: int) -> tuple[int, ...]:
        return tuple({column for _, columns in self._armed.take(seq + 1) for column in columns})

    def _drop(self, launches: int) -> None:
        self._tally.dropped += launches
        self._tally.gaps += not self._gap
        self._gap = True

    def _place(self, queue: Any) -> int:  # noqa: ANN401 - pyopencl is untyped
        """Row of `_places` for a queue; it holds the queue, so that no other one gets its handle."""
        if len(self._queues) >= _MOST_QUEUES:
            self._queues.clear()
        device = self._device_ids.setdefault(queue.device.int_ptr, len(self.devices))
        if device == len(self.devices):
            self.devices.append(queue.device.name)
        context = self._contexts.setdefault(queue.context.int_ptr, len(self._contexts))
        self._queues[queue] = row = len(self._places)
        self._places.append((row, device, context))
        return row

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
        taken: list[tuple[Any, ...]] = []
        while len(taken) < max_events and pending and (pending[0][_EVENT] is None or self._ready(pending[0])):
            taken.append(pending.popleft())
        with self._lock:
            self._tally.delivered += len(taken)
        return self._batch(taken) if taken else EventBatch.empty(len(self.counters))

    def _ready(self, launch: tuple[Any, ...]) -> bool:
        if self._stopped or len(self._pending) * 2 >= self._capacity:
            return True
        return bool(launch[_EVENT].command_execution_status <= 0)

    def _batch(self, taken: list[tuple[Any, ...]]) -> EventBatch:
        seqs, name_ids, places, sizes, locals_, in_groups, gaps, events, _ = zip(*taken, strict=True)
        place = np.array(self._places, dtype=np.uint32)[list(places)]
        shape = _shapes(sizes, locals_, in_groups)
        counters = np.full((len(taken), len(self.counters)), np.nan)
        times = np.zeros((len(taken), 2), dtype=np.int64)
        for row, event in enumerate(events):
            if event is not None:
                self._measure(_Launch(*taken[row]), counters[row], times[row])
        return EventBatch.of(
            len(taken),
            len(self.counters),
            seq=seqs,
            name_id=name_ids,
            process=os.getpid(),
            stream=place[:, 0],
            device=place[:, 1],
            context=place[:, 2],
            correlation=seqs,
            start_ns=times[:, 0],
            end_ns=times[:, 1],
            grid=shape[:, 0],
            block=shape[:, 1],
            counters=counters,
            gap=gaps,
        )  # fmt: skip - columns side by side

    def _measure(self, launch: _Launch, counters: Any, times: Any) -> None:  # noqa: ANN401 - row views
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
        grid, block = _shape(launch.global_size, launch.local_size, launch.in_groups)
        rate = math.prod(grid) * math.prod(block) * 1000 / duration if duration else math.nan
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
            self._queues.clear()

    def health(self) -> SourceHealth:
        """The account so far."""
        with self._lock:
            return self._tally.snapshot()


def _modules() -> tuple[Any, Any]:
    """Where pyopencl and the launchers that it generates look up the enqueue function."""
    import pyopencl as cl  # noqa: PLC0415 - optional extra `opencl`

    return cl._cl, cl  # noqa: SLF001 - see above


def _shapes(sizes: Sequence[Any], locals_: Sequence[Any], in_groups: Sequence[bool]) -> NDArray[np.uint32]:
    """Grid and block of each launch, shape (n, 2, 3); few distinct ones, so each is worked out once."""
    known: dict[Any, int] = {}
    keys = zip(sizes, locals_, in_groups, strict=True)
    try:
        rows = [known.setdefault(key, len(known)) for key in keys]
    except TypeError:  # sizes may be lists
        keys = zip(map(tuple, sizes), (local and tuple(local) for local in locals_), in_groups, strict=True)
        known = {}
        rows = [known.setdefault(key, len(known)) for key in keys]
    table = np.array([_shape(*key) for key in known], dtype=np.uint32)
    return table[rows]


def _shape(size: tuple[int, ...], local: tuple[int, ...] | None, in_groups: bool) -> list[list[int]]:  # noqa: FBT001 - a column
    """Grid and block; an unknown local size counts as 1, so that grid x block stays the work-items."""
    grid = [*size, 1, 1][:3]
    block = [1, 1, 1] if local is None else [*local, 1, 1][:3]
    return [
        grid if in_groups else [-(-item // width) for item, width in zip(grid, block, strict=True)],
        block,
    ]
