"""Gauges of NVIDIA GPUs by NVML: utilisation, and on Hopper and newer DRAM and tensor use by GPM.

Both describe the whole device (or MIG instance), so they never enter a kernel's histogram.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from penrose_ray.capture.events import Capabilities
from penrose_ray.capture.gauge import GaugeSource, Reading
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penrose_ray.clock import Clock

UTILISATION = Counter("gpu_use", "%", "nvml", "nvidia")
MEMORY_CONTROLLER = Counter("memory_controller_use", "%", "nvml", "nvidia")
POWER = Counter("power", "W", "nvml", "nvidia")
DRAM = Counter("dram_use", "%", "nvml-gpm", "nvidia")
TENSOR = Counter("tensor_use", "%", "nvml-gpm", "nvidia")
_REASONS = {
    "NVMLError_LibraryNotFound": "no NVIDIA driver is installed: install it, or run on a machine with a GPU",
    "NVMLError_DriverNotLoaded": "the NVIDIA driver is not loaded: load it with `modprobe nvidia`",
    "NVMLError_NoPermission": "NVML refuses this user: run as root, or give the user access to /dev/nvidia*",
    "NVMLError_FunctionNotFound": "nvidia-ml-py is newer than the driver: update the driver",
    "NVMLError_LibRmVersionMismatch": "driver and NVML library differ in version: reboot after the update",
}


class _Device(NamedTuple):
    """A GPU, or an instance of one in MIG mode."""

    handle: Any
    whole: Any
    """The GPU's own handle."""
    instance: int | None
    """Number of the GPU instance."""
    uuid: str
    model: str


class NvmlSource(GaugeSource):
    """Readings of every GPU, and of every MIG instance of GPUs in MIG mode."""

    def __init__(self, *, clock: Clock, period_s: float = 1.0, capacity: int = 1 << 16) -> None:
        counters = (UTILISATION, MEMORY_CONTROLLER, POWER, DRAM, TENSOR)
        super().__init__(counters, clock=clock, period_s=period_s, capacity=capacity)
        self._nvml: Any = None
        self._samples: dict[str, Any] = {}

    def probe(self) -> Capabilities:
        """Whether NVML answers, and what its devices do not offer."""
        try:
            nvml = _initialised()
        except SourceError as error:
            return Capabilities(available=False, per_kernel_counters=False, reasons=(str(error),))
        reasons = ["NVML reads whole devices, no single kernels."]
        with suppress(nvml.NVMLError):
            for each in _devices(nvml, reasons.append):
                if _value(nvml, "nvmlDeviceGetUtilizationRates", each.handle) is None:
                    reasons.append(f"{each.uuid} gives no utilisation (MIG instances do not).")
                if not _has_gpm(nvml, each.whole):
                    reasons.append(
                        f"{each.uuid} has no GPM (Hopper or newer is needed): DRAM and tensor use stay NaN."
                    )
        nvml.nvmlShutdown()
        return Capabilities(available=True, per_kernel_counters=False, reasons=tuple(reasons))

    def _start(self) -> None:
        self._nvml = _initialised()

    def _stop(self) -> None:
        for sample in self._samples.values():
            self._nvml.nvmlGpmSampleFree(sample)
        self._samples.clear()
        self._nvml.nvmlShutdown()

    def _readings(self) -> Sequence[Reading]:
        nvml = self._nvml
        readings: list[Reading] = []
        for each in _devices(nvml, self.tally.warn):
            found: dict[Counter, float | None] = {}
            rates = _value(nvml, "nvmlDeviceGetUtilizationRates", each.handle)
            power = _value(nvml, "nvmlDeviceGetPowerUsage", each.handle)
            if rates is not None:
                found |= {UTILISATION: float(rates.gpu), MEMORY_CONTROLLER: float(rates.memory)}
            found[POWER] = None if power is None else power / 1000
            found |= self._gpm(each)
            values = {counter: value for counter, value in found.items() if value is not None}
            readings.append(Reading(each.uuid, each.model, values))
        return readings

    def _gpm(self, device: _Device) -> dict[Counter, float | None]:
        """DRAM and tensor use since the last reading of the device; nothing at the first one."""
        nvml = self._nvml
        if not _has_gpm(nvml, device.whole):
            return {}
        sample = nvml.nvmlGpmSampleAlloc()
        if device.instance is None:
            taken = _value(nvml, "nvmlGpmSampleGet", device.whole, sample)
        else:
            taken = _value(nvml, "nvmlGpmMigSampleGet", device.whole, device.instance, sample)
        if taken is None:
            nvml.nvmlGpmSampleFree(sample)
            return {}
        before = self._samples.get(device.uuid)
        self._samples[device.uuid] = sample
        if before is None:
            return {}
        wanted = {DRAM: nvml.NVML_GPM_METRIC_DRAM_BW_UTIL, TENSOR: nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL}
        values = _metrics(nvml, before, sample, list(wanted.values()))
        nvml.nvmlGpmSampleFree(before)
        return dict(zip(wanted, values, strict=True))


def _metrics(nvml: Any, before: Any, after: Any, metrics: list[int]) -> list[float | None]:  # noqa: ANN401 - NVML's own
    request = nvml.c_nvmlGpmMetricsGet_t()
    request.version = nvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    request.sample1, request.sample2 = before, after
    for place, metric in enumerate(metrics):
        request.metrics[place].metricId = metric
    if _value(nvml, "nvmlGpmMetricsGet", request) is None:
        return [None] * len(metrics)
    return [
        float(request.metrics[place].value)
        if request.metrics[place].nvmlReturn == nvml.NVML_SUCCESS
        else None
        for place in range(len(metrics))
    ]


def _has_gpm(nvml: Any, handle: Any) -> bool:  # noqa: ANN401 - NVML's own
    support = _value(nvml, "nvmlGpmQueryDeviceSupport", handle)
    return support is not None and bool(getattr(support, "isSupportedDevice", support))


def _initialised() -> Any:  # noqa: ANN401 - a module
    try:
        import pynvml as nvml  # noqa: PLC0415 - optional extra `gpu`
    except ImportError as error:
        raise SourceError(
            "nvidia-ml-py is not installed.", remedy='Install it with pip install "penrose-ray[gpu]".'
        ) from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        reason, _, remedy = _REASONS.get(type(error).__name__, f"{error}: see the driver's log").partition(
            ": "
        )
        raise SourceError(
            f"NVML cannot be used: {reason}.", remedy=f"{remedy[:1].upper()}{remedy[1:]}."
        ) from error
    return nvml


def _value(nvml: Any, function: str, *arguments: Any) -> Any:  # noqa: ANN401 - NVML's own
    """A reading, or None where the device, driver or library does not offer it."""
    try:
        value = getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None
    return True if value is None else value


def _devices(nvml: Any, warn: Callable[[str], None]) -> Iterator[_Device]:  # noqa: ANN401 - NVML's own
    """Every GPU that answers, or the instances of one in MIG mode."""
    for index in range(_value(nvml, "nvmlDeviceGetCount") or 0):
        handle = _value(nvml, "nvmlDeviceGetHandleByIndex", index)
        model = None if handle is None else _value(nvml, "nvmlDeviceGetName", handle)
        if model is None:
            warn(f"GPU {index} does not answer and is left out: see the driver's log.")
            continue
        mode = _value(nvml, "nvmlDeviceGetMigMode", handle)
        if not mode or mode is True or mode[0] != 1:
            yield _Device(handle, handle, None, nvml.nvmlDeviceGetUUID(handle), model)
            continue
        for place in range(_value(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            instance = _value(
                nvml,
                "nvmlDeviceGetMigDeviceHandleByIndex",
                handle,
                place,
            )
            if instance is not None:
                number = _value(nvml, "nvmlDeviceGetGpuInstanceId", instance) or 0
                yield _Device(instance, handle, number, nvml.nvmlDeviceGetUUID(instance), model)
