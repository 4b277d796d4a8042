"""What `penrose client` watches, by the names and options of its command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from penrose_ray.capture.source import EventSource
    from penrose_ray.task import Task

DEFAULT_EXPORTER = "http://localhost:9400/metrics"
DEFAULT_BUS = "socketcan:can0"


class SourceName(StrEnum):
    """Launches of programs, a recording, or readings of whole devices."""

    OPENCL = "opencl"
    CUDA = "cuda"
    TRACE = "trace"
    NVML = "nvml"
    DCGM = "dcgm"
    CAN = "can"
    PERFETTO = "perfetto"


SourceOption = Annotated[SourceName, typer.Option("--source", help="What the client watches.")]
TraceOption = Annotated[
    Path | None, typer.Option("--trace", help="For --source trace and perfetto: the file.")
]
ExporterOption = Annotated[str, typer.Option("--exporter", help="For --source dcgm: dcgm-exporter's page.")]
DbcOption = Annotated[
    Path | None,
    typer.Option("--dbc", help="For --source can: the vehicle's DBC file; the task names signals."),
]
BusOption = Annotated[str, typer.Option("--bus", help="For --source can: python-can's INTERFACE:CHANNEL.")]


@dataclass(frozen=True, slots=True)
class Watched:
    """Where a client's source finds what it reads."""

    rings: Path
    trace: Path | None
    exporter: str
    dbc: Path | None
    bus: str


def source_of(name: SourceName, where: Watched, task: Task) -> EventSource:
    """The source, not yet open.

    Raises:
        ConfigError: an option is missing that the source needs.
        SourceError: the source cannot be used on this machine.
    """
    if name is SourceName.CUDA:
        from penrose_ray.capture.injection import cuda_ring_source  # noqa: PLC0415 - one of them is needed

        return cuda_ring_source(where.rings)
    if name is SourceName.OPENCL:
        from penrose_ray.capture.preload import opencl_ring_source  # noqa: PLC0415

        return opencl_ring_source(where.rings)
    if name is SourceName.TRACE:
        from penrose_ray.capture.replay import ReplaySource  # noqa: PLC0415

        return ReplaySource(_needed(where.trace, "--source trace needs --trace FILE."))
    return _gauges(name, where, task)


def _gauges(name: SourceName, where: Watched, task: Task) -> EventSource:
    from penrose_ray.clock import SystemClock  # noqa: PLC0415

    if name is SourceName.NVML:
        from penrose_ray.capture.nvml import NvmlSource  # noqa: PLC0415

        return NvmlSource(clock=SystemClock())
    if name is SourceName.DCGM:
        from penrose_ray.capture.dcgm import DcgmSource  # noqa: PLC0415

        return DcgmSource(where.exporter, clock=SystemClock())
    if name is SourceName.PERFETTO:
        from penrose_ray.capture.perfetto import PerfettoSource  # noqa: PLC0415

        return PerfettoSource(_needed(where.trace, "--source perfetto needs --trace FILE."))
    from penrose_ray.capture.can_bus import CanSource  # noqa: PLC0415

    interface, _, channel = where.bus.partition(":")
    wanted = {
        counter.name for each in task.counter_sets for counter in each.counters if counter.source == "can"
    }
    return CanSource(
        _needed(where.dbc, "--source can needs --dbc FILE."),
        sorted(wanted),
        interface=interface,
        channel=channel,
        clock=SystemClock(),
    )


def _needed(file: Path | None, missing: str) -> Path:
    if file is None:
        raise ConfigError(missing, remedy="Name the file.")
    return file
