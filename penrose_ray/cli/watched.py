"""What `penrose client` watches, by the names and options of its command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penrose_ray.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from collections.abc import Mapping

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


_MEASURES: Final = {
    SourceName.CUDA: ("cupti",),
    SourceName.OPENCL: ("opencl",),
    SourceName.NVML: ("nvml", "nvml-gpm"),
    SourceName.DCGM: ("dcgm",),
    SourceName.CAN: ("can",),
    SourceName.PERFETTO: ("perfetto",),
}
"""`source` of the counters that each measures; the first that is here is taken. A recording may have any."""
_DRIVER: Final = Path("/proc/driver/nvidia/version")
SourceOption = Annotated[
    SourceName | None,
    typer.Option("--source", help="What to watch; else what this machine has of what the task asks for."),
]
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


def source_for(task: Task, source: SourceName | None, where: Watched) -> SourceName:
    """The source that was named, or one of this machine that measures what the task asks for.

    Raises:
        ConfigError: an option that the source would not use.
        SourceError: the named one measures nothing of the task, or there is none on this machine.
    """
    asked = sorted({counter.source for each in task.counter_sets for counter in each.counters})
    chosen = source or _found(asked, where)
    users = {
        f"--trace {where.trace}": (where.trace, (SourceName.TRACE, SourceName.PERFETTO)),
        f"--dbc {where.dbc}": (where.dbc, (SourceName.CAN,)),
        f"--bus {where.bus}": (where.bus != DEFAULT_BUS, (SourceName.CAN,)),
        f"--exporter {where.exporter}": (where.exporter != DEFAULT_EXPORTER, (SourceName.DCGM,)),
    }
    for option, (given, names) in users.items():
        if given and chosen not in names:
            raise ConfigError(
                f"{option} would not be used: the source is {chosen}.",
                remedy=f"Give --source {' or '.join(names)}, or leave it out.",
            )
    if chosen in _MEASURES and not set(_MEASURES[chosen]) & set(asked):
        raise SourceError(
            f"--source {chosen} measures nothing that this task asks for, which is {', '.join(asked)}.",
            remedy=_other(asked),
        )
    return chosen


def _found(asked: list[str], where: Watched) -> SourceName:
    if where.trace is not None:
        return SourceName.PERFETTO if "perfetto" in asked else SourceName.TRACE
    lacking = {
        SourceName.CUDA: not _DRIVER.exists(),
        SourceName.NVML: not _DRIVER.exists(),
        SourceName.CAN: where.dbc is None,
        SourceName.PERFETTO: True,
    }
    fitting = _fitting(asked)
    for each in fitting:
        if not lacking.get(each):
            return each
    reason = ": no NVIDIA driver is loaded" if {SourceName.CUDA, SourceName.NVML} & set(fitting) else ""
    raise SourceError(
        f"This task asks for {', '.join(asked)}, and nothing was found here that measures it{reason}.",
        remedy=_other(asked),
    )


def _fitting(asked: list[str]) -> list[SourceName]:
    return [name for name, measured in _MEASURES.items() if set(measured) & set(asked)]


def _other(asked: list[str]) -> str:
    needs = {
        SourceName.CAN: " --dbc FILE",
        SourceName.PERFETTO: " --trace FILE",
        SourceName.TRACE: " --trace FILE",
    }
    named = [f"--source {each}{needs.get(each, '')}" for each in (*_fitting(asked), SourceName.TRACE)]
    return f"Give {' or '.join(named)}."


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


def variables(
    rings: Path, watched: Path, source: SourceName | None, base: Mapping[str, str]
) -> dict[str, str]:
    """The environment of a program that a client is to watch.

    Args:
        rings: where the client looks for launches.
        watched: where it says what it watches.
        source: what the client watches; None for what it says, else what this machine has.
        base: variables to add to.

    Raises:
        ConfigError: the client watches no programs.
        SourceError: they cannot be captured here.
    """
    if source is None and watched.exists():
        source = SourceName(watched.read_text())
    if source is None:
        source = SourceName.CUDA if _DRIVER.exists() else SourceName.OPENCL
    if source is SourceName.CUDA:
        from penrose_ray.capture.injection import cuda_environment  # noqa: PLC0415 - one of them is needed

        return cuda_environment(rings, base)
    if source is SourceName.OPENCL:
        from penrose_ray.capture.preload import opencl_environment  # noqa: PLC0415

        return opencl_environment(rings, base)
    raise ConfigError(f"--source {source} needs no variables.", remedy="Use --source opencl or cuda.")


def _needed(file: Path | None, missing: str) -> Path:
    if file is None:
        raise ConfigError(missing, remedy="Name the file.")
    return file
