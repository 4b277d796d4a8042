"""Capture of an unmodified OpenCL program: the environment that makes it write a ring."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from penrose_ray.capture.ring import private_directory
from penrose_ray.capture.ring_source import RingSource
from penrose_ray.compiled import shared_library

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OPENCL_LIBRARY = "opencl_preload"
_ASK_VENDOR = "from penrose_ray.capture.opencl_device import *; print(vendor_of(pick_device()))"
_ASK_S = 120.0


def opencl_environment(directory: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for `subprocess`: launches of the program and of its children go into `directory`.

    Raises:
        SourceError: no C compiler, or the directory is not private.
    """
    environment = dict(os.environ if base is None else base)
    before = environment.get("LD_PRELOAD", "")
    library = str(shared_library(__package__, OPENCL_LIBRARY))
    environment["LD_PRELOAD"] = f"{library}:{before}" if before else library
    environment["PENROSE_RING_DIR"] = str(private_directory(directory).resolve())
    return environment


def opencl_ring_source(directory: Path, *, vendor: str | None = None, keep_marks: bool = False) -> RingSource:
    """The reader of those rings; the counters' vendor is that of the first device here unless given."""
    return RingSource(directory, vendor=vendor or _vendor(), keep_marks=keep_marks)


def _vendor() -> str:
    """Asked in a process that ends: an OpenCL library once loaded keeps 50 MB and more."""
    try:
        asked = subprocess.run(  # noqa: S603 - our own code
            [sys.executable, "-c", _ASK_VENDOR],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ASK_S,
        )
    except subprocess.TimeoutExpired:  # a driver that hangs
        return "unknown"
    return asked.stdout.strip() if asked.returncode == 0 else "unknown"
