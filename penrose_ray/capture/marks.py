"""Regions that a captured program names: which of its launches fell into each.

`pr.annotate` writes a line for each region beside the program's ring: how many launches the program had made
when it began and when it ended, those of other threads included. Nothing is written where no ring is.
"""

from __future__ import annotations

import contextlib
import os
import struct
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from penrose_ray.capture.ring import LAUNCHES_AT, PID_AT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIX = ".regions"
_WORD = struct.Struct("<Q")


class Mark(NamedTuple):
    """A region: launches `first` up to, not including, `end` of one process."""

    first: int
    end: int
    name: str


@contextlib.contextmanager
def marked(directory: Path, name: str) -> Iterator[None]:
    """Note the launches that this process makes inside, if it is captured into this directory."""
    first = _launches(directory)
    try:
        yield
    finally:
        ring = _own_ring(directory)
        end = _launches(directory)
        if ring is not None and end > first:
            line = msgspec.json.encode((first, end, name)) + b"\n"
            file = os.open(
                ring.with_suffix(SUFFIX), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            with open(file, "ab", buffering=0) as out:  # noqa: PTH123 - a descriptor
                out.write(line)


def read_marks(ring: Path) -> tuple[Mark, ...]:
    """Regions of the process that wrote this ring, an outer one before those inside it."""
    try:
        lines = ring.with_suffix(SUFFIX).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    found = []
    for line in lines:
        with contextlib.suppress(msgspec.MsgspecError):  # a program that was killed may leave half a line
            found.append(Mark(*msgspec.json.decode(line, type=tuple[int, int, str])))
    # of two regions of the same launches the outer one ended later and stands later in the file
    order = sorted(range(len(found)), key=lambda at: (found[at].first, -found[at].end, -at))
    return tuple(found[at] for at in order)


def _launches(directory: Path) -> int:
    """Launches that this process has made; 0 before its first one."""
    ring = _own_ring(directory)
    return 0 if ring is None else _word(ring, LAUNCHES_AT)


_rings: dict[int, Path] = {}


def _own_ring(directory: Path) -> Path | None:
    pid = os.getpid()
    known = _rings.get(pid)
    if known is None or not known.exists():
        for path in directory.glob("*.ring"):
            with contextlib.suppress(OSError, struct.error):
                if _word(path, PID_AT) == pid:
                    _rings[pid] = path
                    return path
        return None
    return known


def _word(ring: Path, offset: int) -> int:
    with ring.open("rb", buffering=0) as file:
        (value,) = _WORD.unpack(os.pread(file.fileno(), _WORD.size, offset))
    return int(value)
