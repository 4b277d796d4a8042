"""Checks of a GPU's host: driver, permission for counters, sources, encryption."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from penrose_ray.cli.checks.machine import failure, fine, version_tuple, warning

if TYPE_CHECKING:
    from penrose_ray.cli.checks.machine import Finding, Machine

LEAST_DRIVER: Final = (515, 43, 4)
"""The first one for CUDA 11.7."""
_CAP_SYS_ADMIN: Final = 1 << 21
_LAUNCH_SOURCES: Final = ("opencl", "cupti", "torch")
_COMPILERS: Final = ("cc", "gcc", "clang")
PERMIT: Final = (
    "echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > /etc/modprobe.d/nvidia-profiling.conf,"
    " then reboot; or give the client CAP_SYS_ADMIN. Without it durations work, DRAM and tensor use do not."
)


def gpus(machine: Machine) -> int:
    """NVIDIA GPUs that the driver knows; at least 1, for the others are not listed anywhere."""
    return max(1, len(machine.glob("proc/driver/nvidia/gpus/*")))


def driver(machine: Machine) -> Finding:
    """NVIDIA's driver for CUDA 11.7 or newer, and its library of the same version."""
    found = re.search(r"Kernel Module\D*?([\d.]+)", machine.read("proc/driver/nvidia/version"))
    if found is None:
        return warning(
            "driver",
            "no NVIDIA driver is loaded: CUDA programs cannot be watched, OpenCL ones can",
            "Install driver 515.43.04 or newer where there is an NVIDIA GPU.",
        )
    version = found[1]
    if version_tuple(version) < LEAST_DRIVER:
        return failure("driver", f"{version}; CUDA 11.7 needs 515.43.04", "Update the NVIDIA driver.")
    libraries = {path.name.partition(".so.")[2] for path in machine.glob("usr/lib/*/libnvidia-ml.so.*.*")}
    if libraries and version not in libraries:
        return failure(
            "driver",
            f"the kernel has {version}, the libraries are {', '.join(sorted(libraries))}: values are wrong",
            "Reboot, so that the module of the installed version is loaded.",
        )
    return fine("driver", version)


def counter_permission(machine: Machine) -> Finding:
    """Ordinary users may read the GPU's performance counters."""
    text = machine.read("proc/driver/nvidia/params")
    if not text:
        return fine("gpu-counters", "no NVIDIA driver, nothing to permit")
    if re.search(r"^RmProfilingAdminOnly:\s*1$", text, re.MULTILINE) is None:
        return fine("gpu-counters", "every user may read them")
    if _capabilities(machine) & _CAP_SYS_ADMIN:
        return fine("gpu-counters", "for administrators only, and this process is one")
    return warning("gpu-counters", "for administrators only (RmProfilingAdminOnly: 1)", PERMIT)


def _capabilities(machine: Machine) -> int:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", machine.read("proc/self/status"), re.MULTILINE)
    return int(found[1], 16) if found else 0


def sources(machine: Machine) -> Finding:
    """At least one source of launches works here."""
    survey = machine.survey()
    working = [name for name in _LAUNCH_SOURCES if name in survey and survey[name].available]
    others = [f"{name}: {' '.join(survey[name].reasons)}" for name in survey if not survey[name].available]
    if not working:
        return failure("sources", "; ".join(others) or "none", "See docs/capture.md, Live: install one.")
    detail = f"{', '.join(working)} work" if len(working) > 1 else f"{working[0]} works"
    return fine("sources", "; ".join([detail, *others]))


def compiler(machine: Machine) -> Finding:
    """A C compiler: what is loaded into unmodified programs, and what makes signatures, is compiled once."""
    for name in _COMPILERS:
        line = machine.first_line((name, "--version"))
        if line:
            return fine("compiler", line)
    return warning(
        "compiler",
        "there is none: programs that are not written for Penrose cannot be captured, and signatures take"
        " several times the CPU time",
        "apt-get install gcc libc6-dev",
    )


def native_kernel(machine: Machine) -> Finding:
    """The fast arithmetic of the encryption."""
    reason = machine.native()
    if reason is None:
        return fine("native-kernel", "in use")
    remedy = (
        "pip install 'penrose-ray[native]'"
        if "not installed" in reason
        else "Nothing to do: gmpy2 encrypts instead, with more CPU time."
    )
    return warning("native-kernel", reason, remedy)
