"""Which OpenCL device to use, and queues whose launches can be timed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    import pyopencl as cl

POCL = "pocl"
_VENDOR_WORDS = {"nvidia": "nvidia", "advanced micro": "amd", "amd": "amd", "intel": "intel", "arm": "arm"}
_REMEDY = 'Install PoCL for the CPU with pip install "penrose-ray[opencl]", or the OpenCL driver of your GPU.'


def opencl_counters(vendor: str) -> tuple[Counter, ...]:
    """What is measured of an armed launch: duration, wait from enqueue to start, work-items per time."""
    return (
        Counter("duration", "ns", "opencl", vendor),
        Counter("queue_delay", "ns", "opencl", vendor),
        Counter("work_rate", "work-items/us", "opencl", vendor),
    )


def pick_device() -> cl.Device:
    """The first real GPU, otherwise the first device at all (PoCL on a machine without one).

    Raises:
        SourceError: pyopencl is missing, or it finds no device.
    """
    try:
        import pyopencl as cl  # noqa: PLC0415 - optional extra `opencl`
    except ImportError as error:
        raise SourceError(f"OpenCL cannot be used: {error}.", remedy=_REMEDY) from error
    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error as error:
        raise SourceError(f"No OpenCL platform answers: {error}.", remedy=_REMEDY) from error
    if not devices:
        raise SourceError("OpenCL has no device on this machine.", remedy=_REMEDY)
    return next((device for device in devices if device.type & cl.device_type.GPU), devices[0])


def vendor_of(device: cl.Device) -> str:
    """`nvidia`, `amd`, `intel`, `arm`, `pocl` for PoCL on any processor, or `unknown`."""
    if "portable computing language" in device.platform.name.lower():
        return POCL
    text = device.vendor.lower()
    return next((vendor for word, vendor in _VENDOR_WORDS.items() if word in text), "unknown")


def profiled_queue(device: cl.Device | None = None) -> cl.CommandQueue:
    """An in-order queue in a context of its own, with profiling enabled, on `device` or the picked one."""
    import pyopencl as cl  # noqa: PLC0415 - optional extra `opencl`

    chosen: Any = device or pick_device()
    context = cl.Context([chosen])
    return cl.CommandQueue(context, properties=cl.command_queue_properties.PROFILING_ENABLE)
