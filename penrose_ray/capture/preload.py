"""Capture of an unmodified OpenCL program: the environment that makes it write a ring."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penrose_ray.capture.compiled import shared_library
from penrose_ray.capture.opencl_device import pick_device, vendor_of
from penrose_ray.capture.ring import private_directory
from penrose_ray.capture.ring_source import RingSource
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

OPENCL_LIBRARY = "opencl_preload"


def opencl_environment(directory: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for `subprocess`: launches of the program and of its children go into `directory`.

    Raises:
        SourceError: no C compiler, or the directory is not private.
    """
    environment = dict(os.environ if base is None else base)
    before = environment.get("LD_PRELOAD", "")
    library = str(shared_library(OPENCL_LIBRARY))
    environment["LD_PRELOAD"] = f"{library}:{before}" if before else library
    environment["PENROSE_RING_DIR"] = str(private_directory(directory).resolve())
    return environment


def opencl_ring_source(directory: Path, *, vendor: str | None = None) -> RingSource:
    """The reader of those rings; the counters' vendor is that of the device picked here unless given."""
    if vendor is None:
        try:
            vendor = vendor_of(pick_device())
        except SourceError:
            vendor = "unknown"
    return RingSource(directory, vendor=vendor)
