"""The ring file that captured processes write launches into; the layout is that of native/ring.c."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import struct
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_FORMAT = b"PENROSE-RING-"
MAGIC = _FORMAT + b"02\x00"
LAUNCH, TIMES = 0, 1
GAP, AWAITS_TIMES, RESUMED = 1, 2, 4
KERNEL_NAME, DEVICE_NAME = 0, 1
PLAN = "plan"
RECORD = np.dtype(
    [
        ("launch", "<u8"),
        ("correlation", "<u8"),
        ("queued_ns", "<i8"),
        ("start_ns", "<i8"),
        ("end_ns", "<i8"),
        ("name", "<u4"),
        ("context", "<u4"),
        ("stream", "<u4"),
        ("graph_node", "<u4"),
        ("grid", "<u4", 3),
        ("block", "<u4", 3),
        ("device", "<u2"),
        ("record_kind", "u1"),
        ("kernel_kind", "u1"),
        ("flags", "u1"),
        ("unused", "u1", 3),
    ]
)
_HEADER_BYTES = 4096
_SIZES = struct.Struct("<16s4I")
(
    _PID,
    _WRITTEN,
    _READ,
    _LAUNCHES,
    _DROPPED,
    _PAUSES,
    _NAMES_USED,
    _ARMED_WRITTEN,
    _ARMED_READ,
    _FINISHED,
    _ARMED_BASE,
    _SPENT_NS,
) = (
    32,
    40,
    48,
    56,
    64,
    72,
    80,
    88,
    96,
    104,
    112,
    120,
)
PID_AT, LAUNCHES_AT = _PID, _LAUNCHES
"""Where the header has the writer's process and how many launches it has made."""
_ARMED_SLOTS, _NAME_BYTES = 65_536, 1 << 20


def private_directory(path: Path) -> Path:
    """Create the directory for rings, or check that nobody else can open it.

    Raises:
        SourceError: it belongs to another user, or others may enter it.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise SourceError(
            f"{path} is not a private directory of this user.",
            remedy=f"Run `chmod 700 {path}` or name another one.",
        )
    return path


class RingFile:
    """One process' ring, mapped for reading; what was read is given back to the writer."""

    def __init__(self, path: Path) -> None:
        """Map a ring.

        Raises:
            SourceError: the file is no ring of this version, or another user's.
        """
        self.path = path
        with path.open("r+b") as file:
            info = os.fstat(file.fileno())
            head = file.read(_SIZES.size)
            if info.st_uid != os.geteuid() or len(head) < _SIZES.size:
                raise _no_ring(path)
            if head.startswith(_FORMAT) and not head.startswith(MAGIC):
                raise _other_version(path, head)
            magic, record_bytes, records, armed_slots, name_bytes = _SIZES.unpack(head)
            armed_bytes = armed_slots * 8
            expected = _HEADER_BYTES + armed_bytes + name_bytes + records * record_bytes
            if magic != MAGIC or record_bytes != RECORD.itemsize or records < 1 or info.st_size != expected:
                raise _no_ring(path)
            self._map = mmap.mmap(file.fileno(), expected)
        self._header = np.frombuffer(self._map, dtype="<u8", count=_HEADER_BYTES // 8)
        self._armed = np.frombuffer(self._map, dtype="<u8", count=armed_slots, offset=_HEADER_BYTES)
        self._names_at = _HEADER_BYTES + armed_bytes
        self._name_bytes = name_bytes
        self._records = np.frombuffer(
            self._map, dtype=RECORD, count=records, offset=self._names_at + name_bytes
        )
        self._names_read = 0
        self.names: tuple[list[str], list[str]] = ([], [])
        """Kernel names and device models."""

    @property
    def dropped(self) -> int:
        """Launches that found the ring full, ever."""
        return self._get(_DROPPED)

    @property
    def spent_ns(self) -> int:
        """CPU time that the writer's threads have spent on capture, ever; estimated from one launch in 64."""
        return self._get(_SPENT_NS)

    def pause(self, *, paused: bool) -> None:
        """Have the writer note, time and number nothing, or go on with a record that says RESUMED."""
        pauses = self._get(_PAUSES)
        if pauses % 2 != paused:
            self._set(_PAUSES, pauses + 1)

    @property
    def unread(self) -> bool:
        """Whether no reader has taken anything yet."""
        return self._get(_READ) == 0

    @property
    def finished(self) -> bool:
        """Whether the writer has ended, in order or killed: it no longer holds the lock on the file."""
        if self._get(_FINISHED):
            return True
        try:
            with self.path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return True
        except BlockingIOError:
            return False
        return True

    def _get(self, offset: int) -> int:
        return int(self._header[offset // 8])

    def _set(self, offset: int, value: int) -> None:
        self._header[offset // 8] = value

    def take(self, most: int) -> NDArray[Any]:
        """Up to `most` new records, copied, and their room given back to the writer."""
        read, written = self._get(_READ), self._get(_WRITTEN)
        capacity = len(self._records)
        count = min(most, max(0, min(written - read, capacity)))
        first = read % capacity
        part = self._records[first : first + count].copy()
        if len(part) < count:
            part = np.concatenate([part, self._records[: count - len(part)]])
        self._read_names()
        self._set(_READ, read + count)
        return part

    def _read_names(self) -> None:
        used = min(self._get(_NAMES_USED), self._name_bytes)
        while self._names_read + 4 <= used:
            at = self._names_at + self._names_read
            kind, length = self._map[at], int.from_bytes(self._map[at + 2 : at + 4], "little")
            text = self._map[at + 4 : at + 4 + length].decode("utf-8", "replace")
            self.names[min(kind, DEVICE_NAME)].append(text)
            self._names_read += 4 + length

    @property
    def armed_base(self) -> int:
        """Number in the reader's stream that the process' launch 0 stands for."""
        return self._get(_ARMED_BASE)

    def arm(self, launches: Sequence[int]) -> int:
        """Arm launch numbers of the process, ascending; returns how many found no room.

        Numbers at or below one that is armed already are left out.
        """
        written, read = self._get(_ARMED_WRITTEN), self._get(_ARMED_READ)
        last = int(self._armed[(written - 1) % len(self._armed)]) if written else -1
        launches = [launch for launch in launches if launch > last]
        room = len(self._armed) - (written - read)
        fitting = np.asarray(launches[: max(0, room)], dtype=np.uint64)
        self._armed[(written + np.arange(len(fitting))) % len(self._armed)] = fitting
        self._set(_ARMED_WRITTEN, written + len(fitting))
        return len(launches) - len(fitting)

    def close(self) -> None:
        """Unmap; the writer goes on until the ring is full."""
        del self._header, self._armed, self._records
        self._map.close()


def write_plan(directory: Path, base: int, launches: Sequence[int], *, paused: bool) -> None:
    """Leave a plan for processes that start later: launches of theirs to arm, and the base of these."""
    data = np.array([paused, base, *launches[:_ARMED_SLOTS]], dtype="<u8").tobytes()
    hidden = directory / f".{PLAN}"
    hidden.write_bytes(data)
    hidden.chmod(0o600)
    hidden.replace(directory / PLAN)


def _other_version(path: Path, head: bytes) -> SourceError:
    version, ours = (text[len(_FORMAT) :][:2].decode("ascii", "replace") for text in (head, MAGIC))
    return SourceError(
        f"{path} is a ring of format {version}, and this client reads format {ours}: another version of"
        " penrose-ray captures that program.",
        remedy="End the program, delete the file, and start it again as `penrose client env` says.",
    )


def _no_ring(path: Path) -> SourceError:
    return SourceError(
        f"{path} is not a whole ring of this user.",
        remedy="End the captured program, delete the file, start it again.",
    )


class RingWriter:
    """The writing end in Python, for programs that capture themselves and for tests of the reader."""

    def __init__(self, path: Path, *, records: int = 65_536) -> None:
        size = _HEADER_BYTES + _ARMED_SLOTS * 8 + _NAME_BYTES + records * RECORD.itemsize
        hidden = path.with_name(f".{path.name}")
        self._file = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.ftruncate(self._file, size)
        self._map = mmap.mmap(self._file, size)
        self._map[: _SIZES.size] = _SIZES.pack(MAGIC, RECORD.itemsize, records, _ARMED_SLOTS, _NAME_BYTES)
        self._header = np.frombuffer(self._map, dtype="<u8", count=_HEADER_BYTES // 8)
        self._header[_PID // 8] = os.getpid()
        self._armed = np.frombuffer(self._map, dtype="<u8", count=_ARMED_SLOTS, offset=_HEADER_BYTES)
        self._records = np.frombuffer(
            self._map, dtype=RECORD, count=records, offset=_HEADER_BYTES + _ARMED_SLOTS * 8 + _NAME_BYTES
        )
        self._gap = False
        self._pauses = 0
        hidden.rename(path)

    def add_name(self, kind: int, text: str) -> None:
        """Append a name to its table."""
        data = text.encode()[:65_535]
        used = int(self._header[_NAMES_USED // 8])
        at = _HEADER_BYTES + _ARMED_SLOTS * 8 + used
        entry = bytes([kind, 0]) + len(data).to_bytes(2, "little") + data
        self._map[at : at + len(entry)] = entry
        self._header[_NAMES_USED // 8] = used + len(entry)

    def append(self, records: NDArray[Any]) -> None:
        """Write launches as far as there is room; number them, drop and count the rest.

        Times are written of armed launches only. While capture is paused nothing is done.
        """
        pauses = int(self._header[_PAUSES // 8])
        if pauses % 2:
            return
        began_ns = time.thread_time_ns()
        records = records.copy()
        launches = int(self._header[_LAUNCHES // 8])
        records["launch"] = launches + np.arange(len(records))
        self._header[_LAUNCHES // 8] = launches + len(records)
        unarmed = ~np.isin(records["launch"], self._take_armed(launches + len(records)))
        for column in ("queued_ns", "start_ns", "end_ns"):
            records[column][unarmed] = 0
        written, read = int(self._header[_WRITTEN // 8]), int(self._header[_READ // 8])
        fitting = min(len(records), len(self._records) - (written - read))
        if fitting:
            records["flags"][0] |= (GAP if self._gap else 0) | (RESUMED if pauses != self._pauses else 0)
            self._gap, self._pauses = False, pauses
            self._records[(written + np.arange(fitting)) % len(self._records)] = records[:fitting]
            self._header[_WRITTEN // 8] = written + fitting
        if fitting < len(records):
            self._header[_DROPPED // 8] += len(records) - fitting
            self._gap = True
        self._header[_SPENT_NS // 8] += time.thread_time_ns() - began_ns

    def _take_armed(self, before: int) -> NDArray[np.uint64]:
        read, written = int(self._header[_ARMED_READ // 8]), int(self._header[_ARMED_WRITTEN // 8])
        planned = self._armed[np.arange(read, written) % len(self._armed)]
        passed = planned[: int(np.searchsorted(planned, before))]
        self._header[_ARMED_READ // 8] = read + len(passed)
        return passed

    def close(self) -> None:
        """Say that no more will come."""
        self._header[_FINISHED // 8] = 1
        self.abandon()

    def abandon(self) -> None:
        """Let go of the file without a word, as a killed process does."""
        del self._header, self._records, self._armed
        self._map.close()
        os.close(self._file)
