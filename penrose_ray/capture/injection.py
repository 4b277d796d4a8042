"""Capture of an unmodified CUDA program: the environment that makes the driver load our library into it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from penrose_ray.capture.launch_order import COMPLETION_SPREAD
from penrose_ray.capture.ring import private_directory
from penrose_ray.capture.ring_source import RingSource
from penrose_ray.compiled import shared_library
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CUDA_LIBRARY = "cuda_injection"


def cuda_environment(directory: Path, base: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for `subprocess`: kernels of the program and of its children go into `directory`.

    Raises:
        SourceError: no C compiler, no CUDA headers, or the directory is not private.
    """
    environment = dict(os.environ if base is None else base)
    environment["CUDA_INJECTION64_PATH"] = str(shared_library(__package__, CUDA_LIBRARY, *header_flags()))
    environment["PENROSE_RING_DIR"] = str(private_directory(directory).resolve())
    return environment


def cuda_ring_source(directory: Path) -> RingSource:
    """The reader of those rings; records, which are written as kernels complete, come in launch order."""
    return RingSource(directory, vendor="nvidia", source="cupti", hold=COMPLETION_SPREAD)


def header_flags() -> list[str]:
    """Compiler flags for the folders of cuda.h and cupti.h.

    Raises:
        SourceError: one of them is on none of the usual places.
    """
    flags = []
    for header in ("cuda.h", "cupti.h"):
        folder = next((each for each in _folders() if (each / header).is_file()), None)
        if folder is None:
            raise SourceError(
                f"{header} is not found, which capturing CUDA programs needs once.",
                remedy="Install the CUDA toolkit's headers, or set CUDA_HOME to its folder.",
            )
        flags.append(f"-I{folder}")
    return list(dict.fromkeys(flags))


def _folders() -> Iterator[Path]:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    if home:
        yield from (Path(home) / "include", Path(home) / "extras" / "CUPTI" / "include")
    for toolkit in sorted(Path("/usr/local").glob("cuda*"), reverse=True):
        yield from (toolkit / "include", toolkit / "extras" / "CUPTI" / "include")
    for packages in map(Path, sys.path):
        yield from (packages / "nvidia" / name / "include" for name in ("cu13", "cuda_cupti", "cuda_runtime"))
