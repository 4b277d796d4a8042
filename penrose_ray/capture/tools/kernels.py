"""What a kernel is for, by the kind that its name tells, and names that a person can read."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.events import KernelKind
from penrose_ray.kernel_names import kind_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.capture.tools.trace import Trace

COMPUTE, COMMUNICATION, MEMORY = "compute", "communication", "memory"
_SUM_OF_PARTS = re.compile(r"split_?k\w*reduc|reduc\w*split_?k", re.IGNORECASE)
_MANGLED = re.compile(r"_Z[\w.$]+")


def purpose(name: str, kind: int) -> str:
    """`compute`, `communication` or `memory`."""
    if kind in (KernelKind.COPY, KernelKind.SET) or name.startswith(("Memcpy", "Memset")):
        return MEMORY
    return COMMUNICATION if kind_of(name) == "collective" else COMPUTE


def purposes(trace: Trace) -> NDArray[np.str_]:
    """The purpose of every device activity."""
    table = trace.device
    keys, places = np.unique(table.name * len(KernelKind) + table.kind, return_inverse=True)
    found = [purpose(trace.names[key // len(KernelKind)], int(key % len(KernelKind))) for key in keys]
    return np.array(found, dtype="U13")[places] if len(keys) else np.empty(0, dtype="U13")


def is_product(name: str) -> bool:
    """Whether a kernel belongs to a product of matrices or to a convolution."""
    return kind_of(name) in ("gemm", "conv")


def is_gemm(name: str) -> bool:
    """Whether a kernel multiplies matrices itself: not the one that adds up the parts of a split-K product.

    Convolutions count where they are computed as products (implicit GEMM).
    """
    if kind_of(name) == "conv":
        return "gemm" in name.lower()
    return kind_of(name) == "gemm" and not _SUM_OF_PARTS.search(name)


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
