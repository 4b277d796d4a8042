"""MinHash signatures of grams of kernel names (Broder 1997).

Each view of a scheme is a set of grams; its 100 hash functions keep their least value each. The share of
equal values estimates the Jaccard similarity of two sets, standard error 0.036 at 0.85. Hashing takes one
path for numpy and cupy; sorting out streams and lost records happens on the host. Where there is a C
compiler, compiled code does all of it on the host (`compiled.py`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from penrose_ray.errors import ConfigError
from penrose_ray.snippet import compiled
from penrose_ray.snippet.grams import Launches, beginning, by_stream, grams, scattered, tally
from penrose_ray.snippet.mending import Mended, mended
from penrose_ray.snippet.names import NameHashes
from penrose_ray.snippet.scheme import DEFAULT_SCHEME, FUNCTIONS, SCHEMES, Scheme, scheme
from penrose_ray.snippet.shape import VIEW, shape

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from numpy.typing import ArrayLike, NDArray

    from penrose_ray.snippet.grams import Tally
    from penrose_ray.snippet.scheme import View

__all__ = [
    "DEFAULT_SCHEME",
    "FUNCTIONS",
    "SCHEMES",
    "Scheme",
    "Signature",
    "of_hashes",
    "scheme",
    "signature",
]

_VALUE_BYTES = 4
_ROWS = 128
"""Grams that are hashed at a time: the products of so many stay in the cache."""
_HIGH = np.uint64(32)
_LARGEST = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
WHOLE = 1
"""Lowest bit of a value: set where a further view holds all grams."""
_WHOLE = np.uint32(WHOLE)
_SHAPE_LAUNCHES = 4096
"""The shape is read off so many launches: windows are long for the sake of rare grams, and it has none."""
_SHAPE_FUNCTIONS = 70
"""The other 30 look at names: a program without a name in common stays under 0.71 whatever its shape."""


@dataclass(frozen=True, eq=False, slots=True)
class Signature:
    """MinHash values of one scheme: 100 of each view, uint32, view after view."""

    scheme: str
    values: NDArray[np.uint32]

    def jaccard(self, other: Signature) -> float:
        """Estimated Jaccard similarity, 0 to 1; with several views the highest of theirs.

        Raises:
            ConfigError: the signatures are of different schemes.
        """
        if self.scheme != other.scheme:
            raise ConfigError(
                f"Signatures of schemes {self.scheme} and {other.scheme} cannot be compared.",
                remedy="Compute both with one scheme.",
            )
        return float(similarities(self.values[None, :], other.values)[0])

    def to_bytes(self) -> bytes:
        """The values as little-endian 32-bit words."""
        return self.values.astype("<u4", copy=False).tobytes()

    @classmethod
    def from_bytes(cls, scheme_id: str, raw: bytes) -> Signature:
        """Read what `to_bytes` wrote; ConfigError when the length or the scheme is wrong."""
        size_bytes = _VALUE_BYTES * scheme(scheme_id).size
        if len(raw) != size_bytes:
            raise ConfigError(
                f"A signature of scheme {scheme_id} has {size_bytes} bytes, not {len(raw)}.",
                remedy="Send the signature whole.",
            )
        return cls(scheme_id, np.frombuffer(raw, "<u4").astype(np.uint32))

    def digest(self) -> bytes:
        """The 256-bit snippet hash: SHA-256 of scheme and values."""
        return hashlib.sha256(self.scheme.encode() + b"\x00" + self.to_bytes()).digest()


def similarities(candidates: NDArray[np.uint32], values: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Similarity of each row of `candidates`, shape (n, values), to one signature's values.

    Further views of all grams estimate one similarity with different functions: they are taken together.
    """
    rows = candidates.reshape(len(candidates), -1, FUNCTIONS)
    wanted = values.reshape(-1, FUNCTIONS)
    shares = np.count_nonzero(rows == wanted, axis=2) / FUNCTIONS
    whole = ((rows[:, :, 0] & wanted[:, 0]) & _WHOLE).astype(np.bool_)
    together = np.where(whole, shares, 0.0).sum(axis=1) / np.maximum(whole.sum(axis=1), 1)
    return np.asarray(np.maximum(np.where(whole, 0.0, shares).max(axis=1), together), np.float64)


def signature(
    name_ids: ArrayLike,
    names: Sequence[str],
    streams: ArrayLike | None = None,
    *,
    scheme_id: str = DEFAULT_SCHEME,
    key: bytes = b"",
) -> Signature:
    """Signature of a snippet.

    Args:
        name_ids: integers, shape (L,), launches in launch order.
        names: the table that `name_ids` index.
        streams: integers, shape (L,), stream of each launch; None for one stream.
        scheme_id: a key of SCHEMES.
        key: keys the name hashes; empty for the `plain` identity mode.

    Raises:
        ConfigError: no such scheme, an empty run, ids outside of the table, or one stream id too few.
    """
    ids = np.asarray(name_ids)
    _check(ids, names, streams)
    wanted = scheme(scheme_id)
    table = NameHashes(wanted.names, key)
    hashes = table.of(names)[ids.astype(np.int64)]
    return of_hashes(hashes, None if streams is None else np.asarray(streams), wanted, salt=table.salt)


def _check(ids: NDArray[np.generic], names: Sequence[str], streams: ArrayLike | None) -> None:
    if ids.ndim != 1 or (len(ids) and not np.issubdtype(ids.dtype, np.integer)):
        raise ConfigError("name_ids is no row of integers.", remedy="Pass one name id a launch.")
    if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < len(names):
        raise ConfigError(
            f"name_ids run from {ids.min()} to {ids.max()}, the table has {len(names)} names.",
            remedy="Pass the table that the ids index.",
        )
    if streams is not None and np.shape(streams) != ids.shape:
        raise ConfigError(
            f"There are {np.shape(streams)} streams for {ids.shape} launches.", remedy="Pass one a launch."
        )


def of_hashes(
    hashes: NDArray[np.uint64], streams: NDArray[np.generic] | None, of: Scheme, *, salt: int = 0
) -> Signature:
    """Signature of launches given as 64-bit name hashes.

    Args:
        hashes: uint64, shape (L,), L > 0; numpy, or cupy to hash grams on its device.
        streams: integers, shape (L,); None for one stream.
        of: the scheme.
        salt: `NameHashes.salt` of whoever made the hashes, 0 without a key.
    """
    if len(hashes) == 0:
        raise ConfigError("An empty run of kernels has no signature.", remedy="Pass at least one launch.")
    xp = array_namespace(hashes)
    launches = by_stream(on_host(hashes), None if streams is None else on_host(streams))
    made = compiled.values(launches, of, salt) if xp is np else None
    if made is None or not _compiled_agrees():
        made = _values(launches, of, salt, xp)
    return Signature(of.id, made)


@cache
def _compiled_agrees() -> bool:
    """Whether compiled code and numpy give one signature to a loop that lost records: a self-test."""
    of = SCHEMES[DEFAULT_SCHEME]
    loop = scattered(np.tile(np.arange(1, 51, dtype=np.uint64), 12))
    launches = Launches(np.delete(loop, (130, 131, 377)), (0, 450))
    made = compiled.values(launches, of, 0)
    return made is not None and np.array_equal(made, _values(launches, of, 0, np))


def _values(launches: Launches, of: Scheme, salt: int, xp: Any) -> NDArray[np.uint32]:  # noqa: ANN401 - a module
    if of.mended:
        whole = mended(launches, of.gram)
    else:
        plain = tally(grams(launches, of.gram))
        whole = Mended(launches, plain, plain)
    rows = _views(whole.plain, whole.grams, of, xp)
    if of.shape:
        rows.append(_shape(whole.launches, of, salt, xp))
    return np.concatenate(rows)


def array_namespace(array: object) -> ModuleType:
    """The module, numpy or cupy, that an array belongs to."""
    return cast("ModuleType", array.__array_namespace__() if hasattr(array, "__array_namespace__") else np)


def on_host(array: Any) -> NDArray[Any]:  # noqa: ANN401 - numpy and cupy share no base class
    """The array as a numpy array."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def _views(plain: Tally, found: Tally, of: Scheme, xp: Any) -> list[NDArray[np.uint32]]:  # noqa: ANN401 - a module
    """Minima of each view; the first one is of the launches as they came.

    Views are nested, each a count and more, so grams are hashed once. A further view that holds all grams
    says so in its lowest bits and has functions of its own: the same ones would tell nothing new.
    """
    least = _least_counts(of.views, found.counts, of.least_grams)
    steps = sorted({*least, 1.0}, reverse=True)
    level = np.searchsorted(-np.array(steps), -found.counts)
    groups = [found.values[level == number] for number in range(len(steps))]
    first = of.families[0]
    nested = np.minimum.accumulate(minima(groups, first, xp), axis=0)
    if least[0] > 1:
        rows = [nested[steps.index(least[0])]]
    else:
        rows = [nested[-1] if plain is found else minima([plain.values], first, xp)[0]]
    for family, each in zip(of.families[1:], least[1:], strict=True):
        if each > 1:
            rows.append(nested[steps.index(each)] & ~_WHOLE)
        else:
            rows.append(minima([found.values], family, xp)[0] | _WHOLE)
    return [rows[0] & ~_WHOLE, *rows[1:]]


def _shape(launches: Launches, of: Scheme, salt: int, xp: Any) -> NDArray[np.uint32]:  # noqa: ANN401 - a module
    """Most functions on grams of the shape, the others on the names in use."""
    distances, names = shape(beginning(launches, _SHAPE_LAUNCHES), of.shape - 1, salt)
    found = tally(grams(distances, of.shape))
    (least,) = _least_counts((VIEW,), found.counts, of.least_grams)
    kept = found.values[found.counts >= least]
    first, second = (
        tuple(each[part] for each in of.families[0])
        for part in (slice(_SHAPE_FUNCTIONS), slice(_SHAPE_FUNCTIONS, None))
    )
    return np.concatenate((minima([kept], first, xp)[0], minima([names], second, xp)[0])) & ~_WHOLE


def _least_counts(views: Sequence[View], counts: NDArray[np.int64], least_grams: int) -> list[float]:
    """How often a gram occurs at least that belongs to each view."""
    ordered = np.sort(counts)
    mass = ordered.cumsum()
    typical = ordered[mass.searchsorted([view.share * mass[-1] for view in views])]
    wanted = [
        max(float(view.floor), float(each) / view.divisor) if view.share else float(view.floor)
        for view, each in zip(views, typical, strict=True)
    ]
    kept = len(counts) - ordered.searchsorted(wanted)
    return [each if enough >= max(least_grams, 1) else 1.0 for each, enough in zip(wanted, kept, strict=True)]


def minima(
    groups: Sequence[NDArray[np.uint64]],
    functions: tuple[NDArray[np.uint64], ...],
    xp: Any = np,  # noqa: ANN401 - a module
) -> NDArray[np.uint32]:
    """Least value of each hash function in each group of values (multiply-shift, Dietzfelbinger 1997).

    The shift keeps order, so it waits until the least is known.

    Returns:
        uint32, shape (groups, functions); the largest value for a group without members.
    """
    factors, offsets = (xp.asarray(each) for each in functions)
    least = xp.full((len(groups), len(factors)), _LARGEST, np.uint64)
    products = xp.empty((_ROWS, len(factors)), np.uint64)
    for row, values in zip(least, groups, strict=True):
        mixed = xp.asarray(scattered(values))
        for start in range(0, len(mixed), _ROWS):
            part = mixed[start : start + _ROWS, None]
            hashed = xp.multiply(part, factors, out=products[: len(part)])
            hashed += offsets
            xp.minimum(row, hashed.min(axis=0), out=row)
    return on_host((least >> _HIGH).astype(np.uint32))
