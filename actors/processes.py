"""The processes that a local Ray starts: finding them, measuring them, and leaving none behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc")
_KIB_PER_MIB = 1024
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_KILLED_S = 60.0
"""For processes that are ending to be gone; where the disk is slow they take a moment."""
_RAY = re.compile(rb"^ray::|/ray/core/|/ray/_private/|/ray/dashboard/|/ray/autoscaler/")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, so that they can be found (Linux)."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def family(root: int) -> list[int]:
    """`root` and all its descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                children[int(after_name[1])].append(int(entry.name))
    found = [root]
    for parent in found:
        found.extend(children[parent])
    return found


def pss_mb(pids: list[int]) -> float:
    """Proportional set size of all processes, MiB: pages that they share are counted once."""
    total_kib = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in (_PROC / str(pid) / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total_kib += int(line.split()[1])
    return total_kib / _KIB_PER_MIB


def end_ray(kept: set[int], *, grace_s: float = 1.0) -> None:
    """End this process' descendants that belong to Ray, but for those in `kept`; first asked, then killed."""
    asked = _of_ray(kept)
    for pid in asked:
        _send(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while _of_ray(kept) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    killed = _of_ray(kept)
    for pid in killed:
        _send(pid, signal.SIGKILL)
    ended = {*asked, *killed}
    going = {*ended, *_without_memory(kept)}
    deadline = time.monotonic() + _KILLED_S
    while (going := {pid for pid in going if is_alive(pid)}) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for pid in ended:  # a grandchild, too, became this process' child when its parent went
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def is_alive(pid: int) -> bool:
    """Whether it runs, be it to its end; one that has ended and was not waited for does not."""
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _of_ray(kept: set[int]) -> list[int]:
    """Those of Ray's processes that can be told to end."""
    return [pid for pid, command in _descendants(kept) if _RAY.search(command)]


def _without_memory(kept: set[int]) -> list[int]:
    """Processes that are ending: they have lost their command line and still hold files and ports."""
    return [pid for pid, command in _descendants(kept) if not command]


def _descendants(kept: set[int]) -> Iterator[tuple[int, bytes]]:
    """Descendants of this process and their command lines."""
    for pid in family(os.getpid())[1:]:
        if pid not in kept:
            with contextlib.suppress(OSError):
                yield pid, (_PROC / str(pid) / "cmdline").read_bytes()


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
