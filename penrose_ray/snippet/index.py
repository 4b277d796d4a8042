"""Snippet classes: a new signature joins the nearest class above tau or founds one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from penrose_ray.errors import ConfigError
from penrose_ray.snippet.bands import BandTable
from penrose_ray.snippet.minhash import Signature, similarities
from penrose_ray.snippet.scheme import scheme

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

K = TypeVar("K")
_FIRST_ROOM = 64
_MOST_REMEMBERED = 65_536
_ALL_COMPARED = 64
"""So few representatives are compared one and all: bands could only lose a match."""


class SnippetIndex(Generic[K]):
    """Representative signatures of classes, keyed by whatever names a class.

    The client's own classes and the matcher's are the same code. A class has one representative or, after a
    merge, several.
    """

    def __init__(self, scheme_id: str, similarity: float) -> None:
        """Raise ConfigError when there is no such scheme; `similarity` is tau."""
        self._scheme = scheme_id
        self._similarity = similarity
        self._keys: list[K | None] = []
        self._of_key: dict[K, list[int]] = {}
        self._values = np.empty((_FIRST_ROOM, scheme(scheme_id).size), np.uint32)
        self._bands = BandTable()
        self._remembered: dict[int, tuple[int, float]] = {}

    def __len__(self) -> int:
        return len(self._of_key)

    def __contains__(self, key: K) -> bool:
        return key in self._of_key

    def __iter__(self) -> Iterator[tuple[K, Signature]]:
        """Each class with its first representative, the oldest class first."""
        for key, positions in self._of_key.items():
            yield key, self._signature(positions[0])

    @property
    def size_bytes(self) -> int:
        """Memory of representatives and bands."""
        return self._values.nbytes + self._bands.size_bytes

    def find(self, signature: Signature) -> tuple[K, float] | None:
        """Class whose representative is nearest and above tau, with the estimated similarity.

        The oldest one of several that are equally near. An exact repeat is remembered.

        Raises:
            ConfigError: the signature is of another scheme.
        """
        if signature.scheme != self._scheme:
            raise self._other_scheme(signature)
        # A keyed 64-bit hash of this process: a chance of 1e-10 that two of 65,536 signatures share one.
        fingerprint = hash(signature.to_bytes())
        known = self._remembered.get(fingerprint)
        if known is None:
            known = self._nearest(signature)
            if known is None:
                return None
            self._remember(fingerprint, known)
        key = self._keys[known[0]]
        return None if key is None else (key, known[1])

    def add(self, key: K, signature: Signature) -> None:
        """Add a representative of the class `key`; its first one founds the class.

        A signature that was found before stays where it was found, see `forget_repeats`.

        Raises:
            ConfigError: the signature is of another scheme.
        """
        if signature.scheme != self._scheme:
            raise self._other_scheme(signature)
        position = len(self._keys)
        if position == len(self._values):
            room = np.empty((2 * position, self._values.shape[1]), np.uint32)
            room[:position] = self._values
            self._values = room
        self._values[position] = signature.values
        self._keys.append(key)
        self._of_key.setdefault(key, []).append(position)
        while not self._bands.add(self._values[position], position):
            self._rebuild_bands()

    def merge(self, kept: K, gone: K) -> None:
        """Let `kept` stand for everything that `gone` stood for; KeyError when either does not exist."""
        if kept == gone:
            return
        into = self._of_key[kept]
        for position in self._of_key.pop(gone):
            self._keys[position] = kept
            into.append(position)

    def remove(self, key: K) -> list[Signature]:
        """Forget a class; returns its representatives. KeyError when there is none."""
        positions = self._of_key.pop(key)
        for position in positions:
            self._keys[position] = None
        self.forget_repeats()
        return [self._signature(position) for position in positions]

    def forget_repeats(self) -> None:
        """Look for the nearest class anew, also of signatures that were found before."""
        self._remembered.clear()

    def representative(self, key: K) -> Signature:
        """Signature that stands for the class `key`; KeyError when there is none."""
        return self._signature(self._of_key[key][0])

    def _signature(self, position: int) -> Signature:
        return Signature(self._scheme, self._values[position].copy())

    def _nearest(self, signature: Signature) -> tuple[int, float] | None:
        count = len(self._keys)
        rows: NDArray[np.int32] = (
            np.arange(count, dtype=np.int32)
            if count <= _ALL_COMPARED
            else self._bands.candidates(signature.values)
        )
        if len(rows) == 0:
            return None
        shares = similarities(self._values[rows], signature.values)
        for best in np.argsort(-shares, kind="stable"):
            if shares[best] <= self._similarity:
                return None
            if self._keys[rows[best]] is not None:
                return int(rows[best]), float(shares[best])
        return None

    def _remember(self, fingerprint: int, known: tuple[int, float]) -> None:
        if len(self._remembered) == _MOST_REMEMBERED:
            self._remembered.clear()
        self._remembered[fingerprint] = known

    def _rebuild_bands(self) -> None:
        self._bands.grow()
        for position, key in enumerate(self._keys[:-1]):
            if key is not None and not self._bands.add(self._values[position], position):
                self._rebuild_bands()
                return

    def _other_scheme(self, signature: Signature) -> ConfigError:
        return ConfigError(
            f"The signature has scheme {signature.scheme}, the task's is {self._scheme}.",
            remedy="Compute signatures with the task's scheme.",
        )
