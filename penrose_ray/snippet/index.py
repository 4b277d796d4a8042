"""Snippet classes: a new signature joins the nearest class above tau or founds one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np

from penrose_ray.errors import ConfigError
from penrose_ray.snippet.minhash import FUNCTIONS, Signature

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

K = TypeVar("K")
_FIRST_ROOM = 64


class SnippetIndex(Generic[K]):
    """Representative signatures of classes, keyed by whatever names a class.

    The client's own classes and the matcher's are the same code.
    """

    def __init__(self, scheme_id: str, similarity: float) -> None:
        self._scheme = scheme_id
        self._similarity = similarity
        self._keys: list[K] = []
        self._representatives: NDArray[np.uint32] = np.empty((_FIRST_ROOM, FUNCTIONS), np.uint32)
        self._exact: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[tuple[K, Signature]]:
        for position, key in enumerate(self._keys):
            yield key, self._signature(position)

    def find(self, signature: Signature) -> tuple[K, float] | None:
        """Class whose representative is nearest and above tau, with the estimated similarity.

        Raises:
            ConfigError: the signature is of another scheme.
        """
        if signature.scheme != self._scheme:
            raise ConfigError(
                f"The signature has scheme {signature.scheme}, the task's is {self._scheme}.",
                remedy="Compute signatures with the task's scheme.",
            )
        raw = signature.to_bytes()
        if (position := self._exact.get(raw)) is None:
            position = self._nearest(signature)
            if position is None:
                return None
            self._exact[raw] = position
        return self._keys[position], signature.jaccard(self._signature(position))

    def add(self, key: K, signature: Signature) -> None:
        """Found the class `key` with `signature` as its representative."""
        position = len(self._keys)
        if position == len(self._representatives):
            room = np.empty((2 * position, FUNCTIONS), np.uint32)
            room[:position] = self._representatives
            self._representatives = room
        self._representatives[position] = signature.values
        self._keys.append(key)
        self._exact[signature.to_bytes()] = position

    def representative(self, key: K) -> Signature:
        """Signature that stands for the class `key`; KeyError when there is none."""
        try:
            return self._signature(self._keys.index(key))
        except ValueError as error:
            raise KeyError(key) from error

    def _signature(self, position: int) -> Signature:
        return Signature(self._scheme, self._representatives[position].copy())

    def _nearest(self, signature: Signature) -> int | None:
        if not self._keys:
            return None
        equal = self._representatives[: len(self._keys)] == signature.values
        shares = equal.mean(axis=1)
        best = int(np.argmax(shares))
        return best if shares[best] > self._similarity else None
