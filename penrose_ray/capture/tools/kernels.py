"""What a kernel is for, told from its name, and names that a person can read."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.events import KernelKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.capture.tools.trace import Trace

COMPUTE, COMMUNICATION, MEMORY = "compute", "communication", "memory"
_COMMUNICATION = re.compile(
    r"nccl|rccl|nvshmem|mscclpp|oneccl|\bMPI_|cross_device_reduce|(?:one|two)shot_all_?reduce", re.IGNORECASE
)
_GEMM = re.compile(
    r"gemm|_gemv|cutlass.*(?:mma|matmul)|\bnvjet|Cijk_|xmma_gemm|cublasLt|matmul|ck::.*Gemm", re.IGNORECASE
)
_MANGLED = re.compile(r"_Z[\w.$]+")


def purpose(name: str, kind: int) -> str:
    """`compute`, `communication` or `memory`."""
    if kind in (KernelKind.COPY, KernelKind.SET) or name.startswith(("Memcpy", "Memset")):
        return MEMORY
    return COMMUNICATION if _COMMUNICATION.search(name) else COMPUTE


def purposes(trace: Trace) -> NDArray[np.str_]:
    """The purpose of every device activity."""
    table = trace.device
    keys, places = np.unique(table.name * len(KernelKind) + table.kind, return_inverse=True)
    found = [purpose(trace.names[key // len(KernelKind)], int(key % len(KernelKind))) for key in keys]
    return np.array(found, dtype="U13")[places] if len(keys) else np.empty(0, dtype="U13")


def is_gemm(name: str) -> bool:
    """Whether a kernel multiplies matrices."""
    return _GEMM.search(name) is not None


@lru_cache(maxsize=100_000)
def readable(name: str) -> str:
    """The name with its mangled C++ symbol resolved, as it is where nothing here can resolve it."""
    if not _MANGLED.fullmatch(name):
        return name
    symbol, dot, rest = name.partition(".")
    demangle = _demangler()
    if demangle is None:
        return name
    status = ctypes.c_int()
    found = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not found or status.value:
        return name
    try:
        return ctypes.string_at(found).decode("utf-8", "replace") + dot + rest
    finally:
        _free(found)


@cache
def _demangler() -> ctypes._NamedFuncPointer | None:
    for library in ("stdc++", "c++abi", "c++"):
        path = ctypes.util.find_library(library)
        if path is None:
            continue
        try:
            function = ctypes.CDLL(path)["__cxa_demangle"]
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        return function
    return None


def _free(pointer: int) -> None:
    function = ctypes.CDLL(None).free
    function.argtypes = [ctypes.c_void_p]
    function.restype = None
    function(pointer)
