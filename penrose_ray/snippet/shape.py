"""Shape: how a program repeats kernels, whatever their names are.

A launch is described by its distance to the last launch of the same kernel in its stream, 0 where that is
further away than a gram reaches. When a library picks another kernel for one call, its name changes wherever
it stands and a set of name grams loses all that hold it; the shape does not change, nor do the other names.
Shape and names together therefore recognise a program after autotuning. Neither would do alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.snippet.grams import MULTIPLIER, Launches, beginnings, scattered
from penrose_ray.snippet.scheme import View

if TYPE_CHECKING:
    from numpy.typing import NDArray

VIEW = View(0.15, 2.0)
"""Which grams of the shape count."""
_KEY_SHIFT = np.uint64(48)
"""Names are told apart by 16 bits, so that a key and a place sort as one word; two names that share them look
like one kernel.
"""
_PLACE_BITS = 16
_PLACES = np.uint32(0xFFFF)


def shape(launches: Launches, furthest: int, salt: int) -> tuple[Launches, NDArray[np.uint64]]:
    """The launches with a hash of their distance, at most `furthest`, in place of the name hash.

    Returns:
        These launches, and the name hashes in use.
    """
    order, changes = _by_name(launches.hashes)
    names = launches.hashes.take(order.take(beginnings(changes)))
    if len(launches.starts) > 1:
        stream = np.repeat(np.arange(len(launches.starts)), np.subtract(launches.ends, launches.starts))
        stream = stream.take(order)
        changes |= stream[1:] != stream[:-1]
    distance = order[1:] - order[:-1]
    changes |= distance > furthest
    distance[changes] = 0
    code = codes(furthest, salt)
    result = np.empty_like(launches.hashes)
    result[order[0]] = code[0]
    result[order[1:]] = code.take(distance)
    return Launches(result, launches.starts), names


@lru_cache(maxsize=8)
def codes(furthest: int, salt: int) -> NDArray[np.uint64]:
    """A hash for each distance."""
    return scattered(np.arange(furthest + 1, dtype=np.uint64) * np.uint64(MULTIPLIER) ^ np.uint64(salt))


def _by_name(hashes: NDArray[np.uint64]) -> tuple[NDArray[np.integer], NDArray[np.bool_]]:
    """Rows ordered by name, then place; and for each but the first whether its name differs from the last."""
    if len(hashes) > 1 << _PLACE_BITS:
        keys = (hashes >> _KEY_SHIFT).astype(np.uint16)
        order = np.argsort(keys, kind="stable")
        keys = keys.take(order)
        return order, keys[1:] != keys[:-1]
    packed = (hashes >> _KEY_SHIFT).astype(np.uint32)
    packed <<= np.uint32(_PLACE_BITS)
    packed |= np.arange(len(hashes), dtype=np.uint32)
    packed.sort()
    return (packed & _PLACES).view(np.int32), (packed[1:] ^ packed[:-1]) > _PLACES
