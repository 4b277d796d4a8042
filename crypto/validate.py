"""Validation of sealed histograms that arrive from anyone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gmpy2
import numpy as np
from gmpy2 import mpz

from penrose_ray.crypto.ciphertext import malformed, require_size, split
from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.kernel.chain import Chain
from penrose_ray.errors import CiphertextError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.crypto.kernel.chains import Chains
    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.crypto.public_key import PublicKey

_NATIVE_FROM = 16
"""Blobs from which the kernel pays for its own start."""


class Validator:
    """Checks blobs against one key and profile.

    Raises:
        WrongKeyError: the key's size is not the profile's.
    """

    def __init__(self, public_key: PublicKey, profile: SlotProfile) -> None:
        require_size(public_key, profile)
        self._key = public_key
        self._profile = profile
        self._chains = native.chains(public_key.n_squared, profile.ciphertext_bytes)

    def faults(self, blobs: Sequence[bytes]) -> dict[int, CiphertextError]:
        """What is wrong with which of these blobs: length, range, or a factor in common with n.

        A product is coprime to n exactly when every factor is, so an honest batch costs one gcd.
        """
        faults = malformed(blobs, self._key, self._profile)
        for index in self._not_coprime([i for i in range(len(blobs)) if i not in faults], blobs):
            faults[index] = CiphertextError(
                "A ciphertext has a factor in common with the modulus.",
                remedy="Refuse it: it would destroy the sum.",
            )
        return faults

    def _not_coprime(self, indices: Sequence[int], blobs: Sequence[bytes]) -> list[int]:
        """Bisection: halves whose product is coprime are done."""
        if gmpy2.gcd(self._product([blobs[i] for i in indices]), self._key.n) == 1:
            return []
        if len(indices) == 1:
            return list(indices)
        middle = len(indices) // 2
        return self._not_coprime(indices[:middle], blobs) + self._not_coprime(indices[middle:], blobs)

    def _product(self, blobs: Sequence[bytes]) -> mpz:
        if self._chains and len(blobs) >= _NATIVE_FROM:
            return self._native_product(self._chains, b"".join(blobs))
        product = mpz(1)
        for blob in blobs:
            for c in split(blob, self._profile):
                product = product * c % self._key.n
        return product

    def _native_product(self, chains: Chains, packed: bytes) -> mpz:
        width, chain = self._profile.ciphertext_bytes, Chain()
        addresses = np.frombuffer(packed, dtype=np.uint8).ctypes.data + np.arange(0, len(packed), width)
        chains.multiply([chain], [len(addresses)], addresses)
        product = chains.product(chain)
        chains.drop(chain)
        return product


def validate(
    public_key: PublicKey, profile: SlotProfile, blobs: Sequence[bytes]
) -> dict[int, CiphertextError]:
    """Faults of these blobs by index; a `Validator` is cheaper for many batches of one key."""
    return Validator(public_key, profile).faults(blobs)
