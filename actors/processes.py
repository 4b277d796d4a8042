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

_PROC = Path("/proc")
_KIB_PER_MIB = 1024
_PR_SET_CHILD_SUBREAPER = 36
_POLL_S = 0.02
_KILLED_S = 10.0
"""For processes that were killed to be gone; where the disk is slow they take a moment."""
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
    left = _of_ray(kept)
    for pid in left:
        _send(pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while (left := _of_ray(kept)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    for pid in left:
        _send(pid, signal.SIGKILL)
    deadline = time.monotonic() + _KILLED_S
    while any(_is_alive(pid) for pid in left) and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended is buried, also where it was a grandchild until its parent went."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        return (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _of_ray(kept: set[int]) -> list[int]:
    alive = []
    for pid in family(os.getpid())[1:]:
        if pid in kept:
            continue
        with contextlib.suppress(OSError):
            if _RAY.search((_PROC / str(pid) / "cmdline").read_bytes()):
                alive.append(pid)
    return alive


def _send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)
