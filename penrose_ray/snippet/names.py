"""One spelling for a kernel, whichever tool reported it."""

from __future__ import annotations

import functools
import hashlib
import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_SUFFIX = re.compile(r"(\s*\[clone [^\]]*\]|\s*\(\.kd\)|\.kd)+$")
_RETURN_TYPE = re.compile(r"^(?:static |inline |__global__ )*void ")
_BUILD_HASH = re.compile(r"_GLOBAL__N__[0-9a-f]+_|__[0-9a-f]{8}_\d+_|_[0-9a-f]{8,}(?=_|$)")


@functools.lru_cache(maxsize=65_536)
def canonical(name: str) -> str:
    """`name` without return type, parameters, template arguments, clone marks and build hashes.

    Tools spell template arguments differently (`3ul`, `(unsigned long)3`, or not at all), so they are
    folded: identity across tools is worth more than telling instances of one template apart.
    """
    short = _SUFFIX.sub("", name.strip())
    short = _RETURN_TYPE.sub("", short)
    short = _without_brackets(short.replace("(anonymous namespace)", "{anonymous}"))
    return _BUILD_HASH.sub("_", short).strip() or name


def _without_brackets(name: str) -> str:
    """Drop everything inside `<...>` and from the parameter list on; an operator's brackets stay."""
    kept: list[str] = []
    depth = 0
    for index, letter in enumerate(name):
        if letter == "<" and not name.endswith("operator", 0, index):
            depth += 1
        elif letter == ">" and depth:
            depth -= 1
        elif letter == "(" and not depth and kept:
            break
        elif not depth:
            kept.append(letter)
    return "".join(kept)


class NameHashes:
    """64-bit hashes of canonical names, for a table that only grows."""

    def __init__(self) -> None:
        self._hashes: NDArray[np.uint64] = np.empty(0, np.uint64)

    def of(self, names: Sequence[str]) -> NDArray[np.uint64]:
        """Hash of each entry of `names`, shape (len(names),); earlier entries are not hashed again."""
        known = len(self._hashes)
        if len(names) > known:
            fresh = [name_hash(names[index]) for index in range(known, len(names))]
            self._hashes = np.concatenate((self._hashes, np.array(fresh, np.uint64)))
        return self._hashes


def name_hash(name: str) -> int:
    """First 8 bytes (little-endian) of the BLAKE2b hash of the canonical name."""
    return int.from_bytes(hashlib.blake2b(canonical(name).encode(), digest_size=8).digest(), "little")
