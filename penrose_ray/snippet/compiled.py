"""Signatures by compiled code: the values that numpy gives, in a fraction of the time.

`native/signature.c` is compiled at first use. Where it cannot be, or `PENROSE_NATIVE=0` forbids it, numpy
does the work.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.compiled import shared_library
from penrose_ray.crypto.kernel.native import SWITCH
from penrose_ray.errors import SourceError
from penrose_ray.snippet.shape import VIEW, codes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.snippet.grams import Launches
    from penrose_ray.snippet.scheme import Scheme

_MOST_LAUNCHES = 1 << 28
"""Grams are numbered in 32 bits."""


class _Scheme(ctypes.Structure):
    """`struct scheme` of the C source."""

    _fields_ = (
        ("gram", ctypes.c_int64),
        ("mended", ctypes.c_int64),
        ("views", ctypes.c_int64),
        ("least_grams", ctypes.c_int64),
        ("shape", ctypes.c_int64),
        ("view", ctypes.c_void_p),
        ("family", ctypes.c_void_p),
        ("code", ctypes.c_void_p),
    )


class _Parameters:
    """A scheme as the C source reads it; keeps the arrays that it points to."""

    def __init__(self, of: Scheme, salt: int) -> None:
        views = [(view.share, view.divisor, float(view.floor)) for view in (*of.views, VIEW)]
        self._arrays = (
            np.array(views, np.float64),
            np.array(of.families, np.uint64),
            codes(max(of.shape - 1, 0), salt),
        )
        self.scheme = _Scheme(
            of.gram,
            of.mended,
            len(of.views),
            of.least_grams,
            of.shape,
            *(array.ctypes.data for array in self._arrays),
        )
        self.pointer = ctypes.addressof(self.scheme)


_parameters = lru_cache(maxsize=8)(_Parameters)


def prepare() -> None:
    """Compile now, so that no launch waits for it later."""
    if _allowed():
        _function()


def values(launches: Launches, of: Scheme, salt: int) -> NDArray[np.uint32] | None:
    """Values of the launches' signature; None where numpy has to do."""
    hashes = launches.hashes
    if not _allowed() or len(hashes) > _MOST_LAUNCHES or (function := _function()) is None:
        return None
    rows = np.ascontiguousarray(hashes, np.uint64)
    starts = np.array([*launches.starts, len(rows)], np.int64)
    made = np.empty(of.size, np.uint32)
    failed = function(
        rows.ctypes.data,
        starts.ctypes.data,
        len(launches.starts),
        _parameters(of, salt).pointer,
        made.ctypes.data,
    )
    return None if failed else made


def _allowed() -> bool:
    return os.environ.get(SWITCH) != "0"


@cache
def _function() -> ctypes._NamedFuncPointer | None:
    try:
        library = ctypes.CDLL(str(shared_library(__package__, "signature", "-O3")))
    except (SourceError, OSError, RuntimeError):  # the last: a user without a home
        return None
    function = library["penrose_signature"]
    pointer = ctypes.c_void_p
    function.argtypes = [pointer, pointer, ctypes.c_int64, pointer, pointer]
    function.restype = ctypes.c_int
    return function
