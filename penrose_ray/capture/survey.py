"""Which live sources work on this machine, and how to start a program under those that are preloaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from penrose_ray.capture.cupti_source import CuptiSource
from penrose_ray.capture.dcgm import DcgmSource
from penrose_ray.capture.injection import cuda_environment
from penrose_ray.capture.nvml import NvmlSource
from penrose_ray.capture.opencl import OpenCLSource
from penrose_ray.capture.preload import opencl_environment
from penrose_ray.capture.torch_source import TorchSource
from penrose_ray.clock import SystemClock
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.capture.events import Capabilities

_ENVIRONMENTS = {"opencl": opencl_environment, "cuda": cuda_environment}
_DRIVER = Path("/proc/driver/nvidia/version")
SOURCES = tuple(_ENVIRONMENTS)
"""Ways to capture an unmodified program."""


def survey() -> dict[str, Capabilities]:
    """What each live source says of this machine; takes seconds, since some load their libraries."""
    clock = SystemClock()
    return {
        "opencl": OpenCLSource().probe(),
        "cupti": CuptiSource().probe(),
        "torch": TorchSource().probe(),
        "nvml": NvmlSource(clock=clock).probe(),
        "dcgm": DcgmSource(clock=clock).probe(),
    }


@dataclass(frozen=True, slots=True)
class Launchpad:
    """The environment for a program under capture."""

    environment: Mapping[str, str]
    sources: tuple[str, ...]
    """Sources that it captures by."""
    left_out: Mapping[str, str]
    """Sources that cannot be used here, with the reason."""


def launchpad(directory: Path, source: str | None = None) -> Launchpad:
    """The environment that makes a program and its children write rings into `directory`.

    Args:
        directory: private directory of the rings, made when it is missing.
        source: one of `SOURCES`; None takes all that this machine can.

    Raises:
        SourceError: the source cannot be used here, none can, or there is no such source.
    """
    if source is not None and source not in _ENVIRONMENTS:
        raise SourceError(f"There is no source {source!r}.", remedy=f"Use one of {', '.join(SOURCES)}.")
    if source == "cuda" and not _DRIVER.exists():
        raise SourceError(
            "No CUDA program can be captured here: no NVIDIA driver is loaded.",
            remedy="Load the driver, or use --source opencl.",
        )
    environment: dict[str, str] = dict(os.environ)
    used: list[str] = []
    left_out: dict[str, str] = {}
    for name, extend in _ENVIRONMENTS.items():
        if source in (None, name):
            try:
                environment = extend(directory, environment)
            except SourceError as error:
                left_out[name] = str(error)
            else:
                used.append(name)
    if not used:
        raise SourceError(
            f"No program can be captured here: {' '.join(left_out.values())}",
            remedy="See docs/capture.md, Live.",
        )
    return Launchpad(environment, tuple(used), left_out)
