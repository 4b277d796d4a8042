"""EventSource over the rings of all captured processes of one host."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from penrose_ray.capture import ring
from penrose_ray.capture.events import Capabilities, EventBatch
from penrose_ray.capture.launch_order import LaunchOrder
from penrose_ray.capture.marks import SUFFIX, Mark, read_marks
from penrose_ray.capture.opencl_device import opencl_counters
from penrose_ray.capture.queued import DEFAULT_CAPACITY, QueuedSource
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from penrose_ray.histogram import Counter

_LOCK = "reader.lock"
_MOST_WANTED = 1 << 17


@dataclass(slots=True)
class _Process:
    """A ring being read, and its launches that wait for their times."""

    file: ring.RingFile
    number: int
    order: LaunchOrder | None
    """Brings the records into launch order; None where they are written so."""
    kernels: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    devices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    held: NDArray[Any] = field(default_factory=lambda: np.empty(0, dtype=ring.RECORD))
    next_launch: int | None = None
    dropped: int = 0
    """Lost launches that are in the account already."""
    spent_before_ns: int = 0
    """What an earlier reader has seen of the process' time."""

    @property
    def spent_ns(self) -> int:
        """CPU time of the process' threads in capture."""
        return self.file.spent_ns - self.spent_before_ns


class RingSource(QueuedSource):
    """Reads every ring in a private directory; processes come and go, each is a `process` of its own.

    With one captured process, `seq` is that process' own launch number. With several, each one counts from
    the number that the stream had when it began and measures its own n-th launch when n was armed: all are
    sampled alike, and measured rows show themselves by counters that are not NaN.

    Args:
        directory: private directory (0700) named to the captured programs as PENROSE_RING_DIR.
        vendor: vendor of the counters.
        source: what writes the rings, `opencl` or `cupti`.
        capacity: launches that may wait for `poll`.
        hold: records are written as kernels complete: so many of each process wait for those of earlier
            launches, and the n-th to complete is measured when n was armed. None where they are written in
            launch order.
        keep_marks: keep the regions of processes that have ended.
    """

    def __init__(
        self,
        directory: Path,
        *,
        vendor: str,
        source: str = "opencl",
        capacity: int = DEFAULT_CAPACITY,
        hold: int | None = None,
        keep_marks: bool = False,
    ) -> None:
        duration, delay, rate = opencl_counters(vendor)
        counters = tuple(type(each)(each.name, each.unit, source, vendor) for each in (duration, delay, rate))
        super().__init__(counters, capacity=capacity, gauges=True)
        self._directory = directory
        self._capacity = capacity
        self._hold = hold
        self._keep_marks = keep_marks
        self._processes: dict[Path, _Process] = {}
        self._seen = 0
        self._paused = False
        self._spent_ns = 0
        """Of processes that have ended."""
        self._planned: list[int] = []
        self._wanted: dict[int, set[int]] = {}
        """Columns that are asked for, by armed number."""
        self._refused: set[Path] = set()
        self.marks: dict[int, tuple[Mark, ...]] = {}
        """Regions of processes that have ended, by process, where they are kept."""
        self._lock_file: int | None = None

    def probe(self) -> Capabilities:
        """Whether rings can be read here."""
        try:
            ring.private_directory(self._directory)
        except (SourceError, OSError) as error:
            return Capabilities(available=False, per_kernel_counters=False, reasons=(str(error),))
        return Capabilities(available=True, per_kernel_counters=True)

    def _start(self) -> None:
        self._paused = False
        try:
            ring.private_directory(self._directory)
            self._lock_file = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SourceError(
                f"Rings in {self._directory} cannot be read: {error.strerror or error}.",
                remedy="Free space, or name another directory.",
            ) from error
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock_file)
            self._lock_file = None
            raise SourceError(
                f"Another client reads the rings in {self._directory}.",
                remedy="Stop it with `penrose client off`.",
            ) from error
        self._find_rings()

    def _stop(self) -> None:
        for process in self._processes.values():
            self._release(process, everything=True)
            self._part(process)  # opened again, it has another number
        self._processes.clear()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    @property
    def writers(self) -> int:
        """Captured processes that still run."""
        return sum(not process.file.finished for process in self._processes.values())

    @property
    def spent_ns(self) -> int:
        """CPU time that captured programs have spent on being captured since they were first read here."""
        return self._spent_ns + sum(process.spent_ns for process in self._processes.values())

    def pause(self, *, paused: bool) -> None:
        """Have all programs note nothing, or note their launches again; a gap is all that shows of it."""
        self._paused = paused
        self._find_rings()
        for process in self._processes.values():
            process.file.pause(paused=paused)
        self._write_plan()

    def arm(self, launches: Sequence[int], counters: Sequence[Counter]) -> None:
        """Time these launches of every process."""
        columns = [index for index, each in enumerate(self.counters) if each in counters]
        if not columns:
            return
        coming = [launch for launch in launches if launch >= self._position]
        self.tally.late_arms += len(launches) - len(coming)
        self._planned = sorted({*(launch for launch in self._planned if launch >= self._position), *coming})
        for launch in coming:
            self._wanted.setdefault(launch, set()).update(columns)
        for launch in list(itertools.islice(self._wanted, max(0, len(self._wanted) - _MOST_WANTED))):
            del self._wanted[launch]
        for process in self._processes.values():
            self._arm_process(process)
        self._write_plan()

    def _write_plan(self) -> None:
        base = self._position
        coming = [launch - base for launch in self._planned if launch >= base]
        try:
            ring.write_plan(self._directory, base, coming, paused=self._paused)
        except OSError as error:  # those that run are told through their rings
            self.tally.warn(f"Programs that start now are told no plan: {error.strerror or error}.")

    def _arm_process(self, process: _Process) -> None:
        base = process.file.armed_base
        without_room = process.file.arm([launch - base for launch in self._planned if launch >= base])
        if without_room:
            self.tally.warn("More launches were armed ahead than a ring holds.")

    def _find_rings(self) -> None:
        for path in sorted(self._directory.glob("*.ring")):
            if path not in self._processes and path not in self._refused:
                self._open_ring(path)

    def _pull(self, wanted: int) -> None:
        """Read the rings in turn until enough is there, so that no busy process keeps the others out."""
        self._find_rings()
        for path in list(self._processes):
            if len(self.queue) >= wanted:
                return
            process = self._processes.pop(path)
            if self._caught_up(process, wanted) and process.file.finished and not self._read(process, wanted):
                self._release(process, everything=True)
                self._account_losses(process, process.file.dropped - process.dropped)
                self._part(process)
                if self._keep_marks and (marks := read_marks(path)):
                    self.marks[process.number] = marks
                path.unlink(missing_ok=True)
                path.with_suffix(SUFFIX).unlink(missing_ok=True)
                continue
            self._processes[path] = process

    def _part(self, process: _Process) -> None:
        self.end_process(process.number)
        self._spent_ns += process.spent_ns
        process.file.close()

    def _caught_up(self, process: _Process, wanted: int) -> bool:
        """Read until enough is there; whether the ring is read to its end."""
        while len(self.queue) < wanted:
            # for the order, records that belong together should be read together
            most = wanted if process.order is None else self._capacity - len(self.queue)
            if not self._read(process, most):
                return True
            self._release(process, everything=False)
        return False

    def _open_ring(self, path: Path) -> None:
        try:
            file = ring.RingFile(path)
            order = None if self._hold is None else LaunchOrder(self.queue, self.tally, hold=self._hold)
            process = _Process(file, self._seen, order, next_launch=0 if file.unread else None)
            process.spent_before_ns = 0 if file.unread else file.spent_ns
            file.pause(paused=self._paused)
        except (SourceError, OSError) as error:
            self.tally.warn(str(error))
            self._refused.add(path)
            return
        self._seen += 1
        self._processes[path] = process
        self._arm_process(process)

    def _read(self, process: _Process, most: int) -> int:
        """Take new records over; returns how many there were."""
        records = process.file.take(most)
        if not len(records):
            return 0
        self._map_names(process)
        are_times = records["record_kind"] == ring.TIMES
        times = records[are_times]
        launches = records[~are_times] if len(times) else records
        process.held = np.concatenate([process.held, launches]) if len(process.held) else launches
        if len(times):
            self._apply_times(process, times)
        return len(records)

    def _apply_times(self, process: _Process, times: NDArray[Any]) -> None:
        places = np.searchsorted(process.held["launch"], times["launch"])
        inside = places < len(process.held)
        places, times = places[inside], times[inside]
        same = process.held["launch"][places] == times["launch"]
        places, times = places[same], times[same]
        for column in ("queued_ns", "start_ns", "end_ns"):
            process.held[column][places] = times[column]
        process.held["flags"][places] &= ~np.uint8(ring.AWAITS_TIMES)
        unread = int((times["end_ns"] == 0).sum())
        self.tally.unread += unread
        if unread:
            self.tally.warn("Some armed launches have no times: the queue was made without profiling.")

    def _map_names(self, process: _Process) -> None:
        kernels, devices = process.file.names
        fresh = [self.name_id(name) for name in kernels[len(process.kernels) :]]
        process.kernels = np.concatenate([process.kernels, np.array(fresh, dtype=np.int64)])
        fresh = [self.device_id(text.partition("\x1f")[0], text) for text in devices[len(process.devices) :]]
        process.devices = np.concatenate([process.devices, np.array(fresh, dtype=np.int64)])

    def _release(self, process: _Process, *, everything: bool) -> None:
        """Hand on the launches before the first one that waits for its times."""
        waiting = process.held["flags"] & ring.AWAITS_TIMES != 0
        ready = len(process.held)
        if waiting.any():
            if everything or len(process.held) > self._capacity // 2:
                self.tally.unread += int(waiting.sum())
            else:
                ready = int(waiting.argmax())
        records, process.held = process.held[:ready], process.held[ready:]
        if len(records):
            self._hand_on(process, records)
        if process.order is not None:
            process.order.hand_on(last=everything)

    def _hand_on(self, process: _Process, records: NDArray[Any]) -> None:
        expected = records["launch"][0] if process.next_launch is None else process.next_launch
        before = np.concatenate([[expected], records["launch"][:-1] + 1])
        for part, start in _runs(records, before):
            lost = int(part["launch"][0]) - start
            self._account_losses(process, lost)
            if process.order is not None and part["flags"][0] & ring.RESUMED:
                process.order.lose(0)
            push = self.queue.push if process.order is None else process.order.feed
            push(self._batch(process, part))
        process.next_launch = int(records["launch"][-1]) + 1

    def _account_losses(self, process: _Process, lost: int) -> None:
        if lost > 0:
            process.dropped += lost
            lose = self.queue.skip if process.order is None else process.order.lose
            lose(lost)

    def _batch(self, process: _Process, records: NDArray[Any]) -> EventBatch:
        start, end = records["start_ns"], records["end_ns"]
        bad = (end < start) | ((start < records["queued_ns"]) & (end != 0))
        self.tally.bad_timestamps += int(bad.sum())
        known = (end != 0) & ~bad
        length = np.where(known, end - start, np.nan)
        items = np.prod(records["grid"].astype(np.float64) * records["block"], axis=1)
        rate = np.divide(items * 1000, length, out=np.full(len(records), np.nan), where=length > 0)
        delay = np.where(known & (records["queued_ns"] != 0), start - records["queued_ns"], np.nan)
        counters = np.column_stack([length, delay, rate])
        for row in np.flatnonzero(known):
            wanted = self._wanted.get(process.file.armed_base + int(records["launch"][row]), ())
            counters[row, [column for column in range(3) if column not in wanted]] = np.nan
        return EventBatch.of(
            len(records),
            3,
            name_id=self._ids(process.kernels, records["name"], self.name_id),
            kind=records["kernel_kind"],
            process=process.number,
            device=self._ids(process.devices, records["device"], self.device_id),
            context=records["context"],
            stream=records["stream"],
            graph_node=records["graph_node"],
            correlation=records["correlation"],
            start_ns=np.where(known, start, 0),
            end_ns=np.where(known, end, 0),
            grid=records["grid"],
            block=records["block"],
            counters=counters,
            # brought into order, a gap is where losses are accounted and not at the record written next
            gap=(records["flags"] & (ring.GAP | ring.RESUMED) != 0) & (process.order is None),
        )

    @staticmethod
    def _ids(
        table: NDArray[np.int64], numbers: NDArray[Any], name: Callable[[str], int]
    ) -> NDArray[np.int64]:
        """Table look-up; a number without a name is called unknown."""
        inside = numbers < len(table)
        if inside.all():
            ids: NDArray[np.int64] = table[numbers]
            return ids
        padded = np.concatenate([table, [name("unknown")]])
        return padded[np.where(inside, numbers, len(table))]


def _runs(records: NDArray[Any], before: NDArray[Any]) -> list[tuple[NDArray[Any], int]]:
    """Runs of consecutive launches, each with the number that was expected at its start."""
    breaks = np.flatnonzero((records["launch"] != before) | (records["flags"] & ring.RESUMED != 0))
    edges = sorted({0, *breaks.tolist(), len(records)})
    return [(records[first:last], int(before[first])) for first, last in itertools.pairwise(edges)]


def remove_rings(directory: Path) -> int:
    """Delete all that capture left in a directory, and the directory when it is empty; returns the rings.

    Programs that still write there are paused first, so that they spend nothing on it any more.
    """
    count = 0
    for path in directory.glob("*.ring"):
        with contextlib.suppress(SourceError, OSError):
            ring.RingFile(path).pause(paused=True)
    left = [path for pattern in ("*.ring", f"*{SUFFIX}", ".*") for path in directory.glob(pattern)]
    for path in [*left, directory / _LOCK, directory / ring.PLAN]:
        count += path.suffix == ".ring"
        path.unlink(missing_ok=True)
    if directory.is_dir() and not any(directory.iterdir()):
        directory.rmdir()
    return count
