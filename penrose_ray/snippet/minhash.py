"""MinHash signatures of 8-grams of kernel names (Broder 1997).

A scheme fixes every parameter that changes a signature, and its id travels with each signature; signatures
of different schemes are never compared. Grams are built inside each stream, since interleaved streams break
identity, and only grams that recur in the window count where enough do: scattered loss adds grams that
occur once, and plain MinHash then loses most matches.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.errors import ConfigError
from penrose_ray.snippet.names import NameHashes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

FUNCTIONS = 100


@dataclass(frozen=True, slots=True)
class Scheme:
    """Parameters of a signature."""

    id: str
    gram: int
    least_count: int
    """A gram counts when it occurs so often in the window ..."""
    least_grams: int
    """... unless fewer grams than this would be left: then all count."""
    seed: bytes


SCHEMES = {
    scheme.id: scheme
    for scheme in (
        Scheme("g8-recurring-v1", gram=8, least_count=2, least_grams=20, seed=b"penrose-ray g8 v1"),
        Scheme("g8-plain-v1", gram=8, least_count=1, least_grams=0, seed=b"penrose-ray g8 v1"),
    )
}
DEFAULT_SCHEME = "g8-recurring-v1"


def scheme(id_: str) -> Scheme:
    """The scheme of that id; ConfigError when there is none."""
    try:
        return SCHEMES[id_]
    except KeyError as error:
        raise ConfigError(
            f"There is no snippet scheme {id_!r}.", remedy=f"Use one of {', '.join(SCHEMES)}."
        ) from error


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """100 MinHash values of one scheme."""

    scheme: str
    values: NDArray[np.uint32]

    def jaccard(self, other: Signature) -> float:
        """Estimated Jaccard similarity, 0 to 1, standard error about 0.04 at 0.85.

        Raises:
            ConfigError: the signatures are of different schemes.
        """
        if self.scheme != other.scheme:
            raise ConfigError(
                f"Signatures of schemes {self.scheme} and {other.scheme} cannot be compared.",
                remedy="Compute both with one scheme.",
            )
        return float(np.mean(self.values == other.values))

    def to_bytes(self) -> bytes:
        """The values as little-endian 32-bit words."""
        return self.values.astype("<u4").tobytes()

    @classmethod
    def from_bytes(cls, scheme_id: str, raw: bytes) -> Signature:
        """Read what `to_bytes` wrote; ConfigError when the length or the scheme is wrong."""
        scheme(scheme_id)
        if len(raw) != 4 * FUNCTIONS:
            raise ConfigError(
                f"A signature has {4 * FUNCTIONS} bytes, not {len(raw)}.", remedy="Send the signature whole."
            )
        return cls(scheme_id, np.frombuffer(raw, "<u4").astype(np.uint32))

    def digest(self) -> bytes:
        """The 256-bit snippet hash: SHA-256 of scheme and values."""
        return hashlib.sha256(self.scheme.encode() + b"\x00" + self.to_bytes()).digest()


def signature(
    name_ids: ArrayLike,
    names: Sequence[str],
    streams: ArrayLike | None = None,
    *,
    scheme_id: str = DEFAULT_SCHEME,
) -> Signature:
    """Signature of a snippet.

    Args:
        name_ids: integers, shape (L,), launches in launch order.
        names: the table that `name_ids` index.
        streams: integers, shape (L,), stream of each launch; None for one stream.
        scheme_id: a key of SCHEMES.
    """
    hashes = NameHashes().of(names)[np.asarray(name_ids, np.int64)]
    return of_hashes(hashes, None if streams is None else np.asarray(streams), scheme(scheme_id))


def of_hashes(hashes: NDArray[np.uint64], streams: NDArray[np.generic] | None, of: Scheme) -> Signature:
    """Signature of launches given as 64-bit name hashes, shape (L,), L > 0."""
    if len(hashes) == 0:
        raise ConfigError("An empty run of kernels has no signature.", remedy="Pass at least one launch.")
    grams, counts = np.unique(_grams(hashes, streams, of.gram), return_counts=True)
    recurring = grams[counts >= of.least_count]
    if len(recurring) >= max(of.least_grams, 1):
        grams = recurring
    return Signature(of.id, _minima(grams, of.seed))


def _grams(hashes: NDArray[np.uint64], streams: NDArray[np.generic] | None, size: int) -> NDArray[np.uint64]:
    """A 64-bit hash of each window of `size` launches inside one stream.

    A stream with fewer launches gives one gram of what it has.
    """
    if streams is None or (streams == streams[0]).all():
        return _windows(hashes, size)
    order = np.argsort(streams, kind="stable")
    sorted_hashes, sorted_streams = hashes[order], streams[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_streams[1:] != sorted_streams[:-1])))
    ends = np.append(starts[1:], len(hashes))
    short = [_windows(sorted_hashes[a:b], size) for a, b in zip(starts, ends, strict=True) if b - a < size]
    if len(hashes) < size:
        return np.concatenate(short)
    inside = sorted_streams[: len(hashes) - size + 1] == sorted_streams[size - 1 :]
    return np.concatenate((_windows(sorted_hashes, size)[inside], *short))


_MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)


def _windows(hashes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    size = min(size, len(hashes))
    count = len(hashes) - size + 1
    mixed = np.zeros(count, np.uint64)
    for offset in range(size):
        mixed = (mixed ^ hashes[offset : offset + count]) * _MULTIPLIER
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _minima(grams: NDArray[np.uint64], seed: bytes) -> NDArray[np.uint32]:
    """Per hash function the least value over the grams (multiply-shift hashing, Dietzfelbinger 1997)."""
    factors, offsets = _functions(seed)
    least = np.full(FUNCTIONS, np.iinfo(np.uint32).max, np.uint32)
    for start in range(0, len(grams), 2048):
        products = grams[start : start + 2048, None] * factors + offsets
        least = np.minimum(least, (products >> np.uint64(32)).astype(np.uint32).min(axis=0))
    return least


@functools.cache
def _functions(seed: bytes) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    raw = hashlib.shake_256(seed).digest(16 * FUNCTIONS)
    words = np.frombuffer(raw, "<u8").reshape(2, FUNCTIONS)
    return words[0] | np.uint64(1), words[1]
