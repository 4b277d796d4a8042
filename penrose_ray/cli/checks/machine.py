"""A finding, and the machine that checks ask; a test hands in another one."""

from __future__ import annotations

import ctypes
import errno
import importlib.metadata
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from penrose_ray.clock import SystemClock

if TYPE_CHECKING:
    from penrose_ray.capture.events import Capabilities
    from penrose_ray.clock import Clock

_PROGRAM_S = 10.0
_TIME_ERROR = 5
"""adjtimex(2): nothing keeps this clock right."""


class Status(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report; `remedy` is empty where nothing is to be done."""

    name: str
    status: Status
    detail: str
    remedy: str = ""


def fine(name: str, detail: str) -> Finding:
    """Nothing to do."""
    return Finding(name, Status.OK, detail)


def warning(name: str, detail: str, remedy: str) -> Finding:
    """It works, but less well than it could."""
    return Finding(name, Status.WARN, detail, remedy)


def failure(name: str, detail: str, remedy: str) -> Finding:
    """It will not work."""
    return Finding(name, Status.FAIL, detail, remedy)


def _survey() -> Mapping[str, Capabilities]:
    from penrose_ray.capture.survey import survey  # noqa: PLC0415 - loads every back end

    return survey()


def _native() -> str | None:
    from penrose_ray.crypto.kernel.native import unavailable  # noqa: PLC0415 - gmpy2, llvmlite

    return unavailable()


def first_line(command: Sequence[str]) -> str:
    """The first line that a program prints; empty when it is missing, fails or hangs."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    try:
        done = subprocess.run(  # noqa: S603 - programs named in this package, no input of anyone
            [path, *command[1:]], capture_output=True, text=True, check=True, timeout=_PROGRAM_S
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.partition("\n")[0]


def package_version(name: str) -> str:
    """Version of an installed Python package; empty when it is missing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def free_bytes(path: Path) -> int:
    """Free space for this user where `path` is, or where it would be made."""
    existing = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    return shutil.disk_usage(existing).free


def listening_problem(host: str, port: int) -> str:
    """Why nobody can listen there; empty when one can."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return os.strerror(error.errno) if error.errno else str(error)
    return ""


class _Timex(ctypes.Structure):
    """`struct timex` of adjtimex(2), as far as it is read here."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("rest", ctypes.c_char * 256),
    )


def clock_error_s() -> float | None:
    """Most by which the kernel holds its clock to be wrong; None when nothing keeps it right.

    Raises:
        OSError: the kernel does not tell.
    """
    library = ctypes.CDLL(None, use_errno=True)
    found = _Timex()
    if not hasattr(library, "adjtimex"):
        raise OSError(errno.ENOSYS, "no adjtimex")
    state = library.adjtimex(ctypes.byref(found))
    if state < 0:
        raise OSError(ctypes.get_errno(), "adjtimex")
    return None if state == _TIME_ERROR else found.maxerror / 1e6


@dataclass(frozen=True)
class Machine:
    """Everything that checks may ask. Files are looked up below `root`."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    home: Path = field(default_factory=Path.home)
    clock: Clock = field(default_factory=SystemClock)
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    first_line: Callable[[Sequence[str]], str] = first_line
    package_version: Callable[[str], str] = package_version
    free_bytes: Callable[[Path], int] = free_bytes
    listening_problem: Callable[[str, int], str] = listening_problem
    clock_error_s: Callable[[], float | None] = clock_error_s
    survey: Callable[[], Mapping[str, Capabilities]] = _survey
    native: Callable[[], str | None] = _native

    def read(self, path: str) -> str:
        """Text of a file of the system, such as `proc/meminfo`; empty when it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""

    def glob(self, pattern: str) -> list[Path]:
        """Files of the system, sorted."""
        return sorted(self.root.glob(pattern))


def version_tuple(text: str) -> tuple[int, ...]:
    """`5.10.0-21-amd64` as (5, 10, 0): numbers and dots at the start; empty when there are none."""
    kept = text.strip()
    end = next((place for place, sign in enumerate(kept) if not (sign.isdigit() or sign == ".")), len(kept))
    return tuple(int(part) for part in kept[:end].split(".") if part)
