"""Checks of any host: kernel, memory, limits of its control group, perf, clock, disk, Tor."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from penrose_ray.cli.checks.machine import failure, fine, version_tuple, warning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.cli.checks.machine import Finding, Machine

LEAST_KERNEL: Final = (5, 4)
CLIENT_BYTES_A_GPU: Final = 50 * 2**20
"""Memory that the client is allowed for each GPU."""
CLIENT_DISK_BYTES: Final = 256 * 2**20
_ROOMY: Final = 4
"""Below so many times the need a warning is given."""
_LEAST_CPUS: Final = 0.1
_PERF_RATE: Final = 100_000
"""Where Linux starts; it lowers the rate when interrupts of perf take too long."""
_MOST_CLOCK_ERROR_S: Final = 60.0
_EARLIEST_S: Final = 1_735_689_600.0
"""1 January 2025: an earlier clock was never set."""
_LEAST_TOR: Final = (0, 4, 7)
_MB: Final = 2**20
_UNLIMITED: Final = 2**62


def kernel(machine: Machine) -> Finding:
    """Linux 5.4 or newer."""
    release = machine.read("proc/sys/kernel/osrelease").strip()
    found = version_tuple(release)
    if not found:
        return warning("kernel", "the version is unknown", "Penrose is tested on Linux 5.4 and newer.")
    if found < LEAST_KERNEL:
        return failure("kernel", f"Linux {release}; 5.4 is needed", "Update the kernel or the distribution.")
    return fine("kernel", f"Linux {release}")


def memory(machine: Machine, need_bytes: int) -> Finding:
    """Enough memory free for what is to run here."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", machine.read("proc/meminfo"), re.MULTILINE)
    if found is None:
        return warning("memory", "free memory is unknown", f"Leave {need_bytes // _MB} MB free.")
    free = int(found[1]) * 1024
    text = f"{free // _MB:,} MB free, {need_bytes // _MB:,} MB needed"
    if free < need_bytes:
        return failure("memory", text, "Stop other programs, or add memory.")
    if free < _ROOMY * need_bytes:
        return warning("memory", text, "Keep some room: a machine that swaps slows the GPU's programs.")
    return fine("memory", text)


def memory_limit(machine: Machine, need_bytes: int) -> Finding:
    """The control group (a container, a service unit) does not cut memory off."""
    limit = min(_memory_limits(machine), default=_UNLIMITED)
    if limit >= _UNLIMITED:
        return fine("memory-limit", "the control group sets none")
    text = f"the control group allows {limit // _MB:,} MB, {need_bytes // _MB:,} MB are needed"
    if limit < need_bytes:
        return failure(
            "memory-limit", text, "Raise MemoryMax= of the unit, or the memory limit of the container."
        )
    return fine("memory-limit", text)


def cpu_limit(machine: Machine, need_cpus: float) -> Finding:
    """The control group does not throttle what is to run here."""
    limit = min(_cpu_limits(machine), default=float("inf"))
    if limit == float("inf"):
        return fine("cpu-limit", f"the control group sets none; {machine.cores} CPUs")
    text = f"the control group allows {limit:g} CPUs, {need_cpus:g} are needed"
    remedy = "Raise CPUQuota= of the unit, or the CPU limit of the container."
    if limit < _LEAST_CPUS:
        return failure("cpu-limit", text, remedy)
    return warning("cpu-limit", text, remedy) if limit < need_cpus else fine("cpu-limit", text)


def _memory_limits(machine: Machine) -> Iterator[int]:
    for folder in _groups(machine, ""):
        text = machine.read(f"{folder}/memory.max").strip()
        if text.isdecimal():
            yield int(text)
    for folder in _groups(machine, "memory"):
        text = machine.read(f"{folder}/memory.limit_in_bytes").strip()
        if text.isdecimal():
            yield int(text)


def _cpu_limits(machine: Machine) -> Iterator[float]:
    for folder in _groups(machine, ""):
        quota, _, period = machine.read(f"{folder}/cpu.max").strip().partition(" ")
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)
    for folder in _groups(machine, "cpu"):
        quota = machine.read(f"{folder}/cpu.cfs_quota_us").strip()
        period = machine.read(f"{folder}/cpu.cfs_period_us").strip()
        if quota.isdecimal() and period.isdecimal():
            yield int(quota) / int(period)


def _groups(machine: Machine, controller: str) -> Iterator[str]:
    """Folders of this process' control group and of those above it; version 2 has no controller's name."""
    for line in machine.read("proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names == controller or controller in names.split(","):
            parts = [part for part in path.split("/") if part]
            top = f"sys/fs/cgroup/{controller}".rstrip("/")
            for length in range(len(parts), -1, -1):
                yield "/".join([top, *parts[:length]])


def perf_rate(machine: Machine) -> Finding:
    """The kernel has not lowered perf_event_max_sample_rate, which says that interrupts take too long."""
    text = machine.read("proc/sys/kernel/perf_event_max_sample_rate").strip()
    if not text.isdecimal():
        return fine("perf-rate", "this kernel has no perf events")
    if int(text) < _PERF_RATE:
        return warning(
            "perf-rate",
            f"perf_event_max_sample_rate is {text}: other profilers and Penrose get late samples",
            f"sysctl -w kernel.perf_event_max_sample_rate={_PERF_RATE}, and end other profilers.",
        )
    return fine("perf-rate", f"perf_event_max_sample_rate is {text}")


def clock(machine: Machine) -> Finding:
    """Reports carry their hour; the service refuses hours that are far off."""
    remedy = "Set the time, and let chrony or systemd-timesyncd keep it (timedatectl set-ntp true)."
    now = machine.clock.now_s()
    if now < _EARLIEST_S:
        return failure("clock", "the clock was never set: the service refuses reports of that hour", remedy)
    try:
        error = machine.clock_error_s()
    except OSError as problem:
        return warning("clock", f"the kernel does not tell whether it is right: {problem.strerror}", remedy)
    if error is None:
        return warning("clock", "nothing keeps it right", remedy)
    if error > _MOST_CLOCK_ERROR_S:
        return warning("clock", f"it may be {error:,.0f} s off", remedy)
    return fine("clock", f"right within {error:.3f} s")


def disk(machine: Machine, place: Path, need_bytes: int) -> Finding:
    """Room for journals or a spool."""
    free = machine.free_bytes(place)
    text = f"{free // _MB:,} MB free at {place}, {need_bytes // _MB:,} MB needed"
    if free < need_bytes:
        return failure("disk", text, "Free some space, or choose another folder: intake stops below that.")
    if free < _ROOMY * need_bytes:
        return warning("disk", text, "Free some space before intake stops.")
    return fine("disk", text)


def tor(machine: Machine, *, needed: bool) -> Finding:
    """The tor program and the package that speaks to it, where uploads go over Tor."""
    line = machine.first_line(("tor", "--version"))
    stem = machine.package_version("stem")
    if not line or not stem:
        what = "there is no program tor" if not line else "the Python package stem is missing"
        remedy = "apt-get install tor" if not line else "pip install 'penrose-ray[tor]'"
        tell = failure if needed else warning
        return tell("tor", f"{what}; without it the gateway sees addresses", remedy)
    found = re.search(r"(\d+(?:\.\d+)+)", line)
    version = found[1] if found else "of unknown version"
    if found and version_tuple(version) < _LEAST_TOR:
        return warning("tor", f"tor {version} is no longer maintained", "Update tor to 0.4.8 or newer.")
    return fine("tor", f"tor {version}")
