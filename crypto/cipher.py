"""How the blobs of a task are made and added up: sealed with Paillier or, in a simulation, in the clear."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import gmpy2
from gmpy2 import mpz

from penrose_ray.crypto.accumulate import Accumulators, Validator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.ciphertext import join, split
from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.plain import PlainAccumulators, PlainEncryptor, PlainValidator

if TYPE_CHECKING:
    from collections.abc import Hashable

    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.crypto.public_key import PublicKey

K = TypeVar("K", bound="Hashable")


class Cipher(Protocol):
    """What the parts of a service need to know of it."""

    @property
    def checks_products(self) -> bool:
        """Whether checking the products of reports is cheaper than checking the reports."""
        ...

    def accumulators(self, capacity: int) -> Accumulators[K] | PlainAccumulators[K]:
        """Empty sums."""
        ...

    def validator(self) -> Validator | PlainValidator:
        """Checks blobs that arrive."""
        ...

    def encryptor(self) -> Encryptor | PlainEncryptor:
        """Makes blobs and re-randomises them."""
        ...

    def difference(self, total: bytes, part: bytes) -> bytes:
        """A sum without one of its parts."""
        ...


@dataclass(frozen=True, slots=True)
class Sealed:
    """Paillier."""

    key: PublicKey
    profile: SlotProfile

    @property
    def checks_products(self) -> bool:
        """Not with the native kernel, whose checks are cheap."""
        return native.chains(self.key.n_squared, self.profile.ciphertext_bytes) is None

    def accumulators(self, capacity: int) -> Accumulators[K]:
        """Empty sums."""
        return Accumulators(self.key, self.profile, capacity=capacity)

    def validator(self) -> Validator:
        """Checks range and group."""
        return Validator(self.key, self.profile)

    def encryptor(self) -> Encryptor:
        """Encrypts."""
        return Encryptor(self.key, self.profile)

    def difference(self, total: bytes, part: bytes) -> bytes:
        """The quotient of two sums."""
        n_squared = self.key.n_squared
        pairs = zip(split(total, self.profile), split(part, self.profile), strict=True)
        return join([c * gmpy2.invert(p, n_squared) % n_squared for c, p in pairs], self.profile)


@dataclass(frozen=True, slots=True)
class Plain:
    """No encryption."""

    profile: SlotProfile

    @property
    def checks_products(self) -> bool:
        """Never: there is next to nothing to check."""
        return False

    def accumulators(self, capacity: int) -> PlainAccumulators[K]:
        """Empty sums."""
        return PlainAccumulators(self.profile, capacity=capacity)

    def validator(self) -> PlainValidator:
        """Checks lengths."""
        return PlainValidator(self.profile)

    def encryptor(self) -> PlainEncryptor:
        """Packs."""
        return PlainEncryptor(self.profile)

    def difference(self, total: bytes, part: bytes) -> bytes:
        """The difference of two sums."""
        left = mpz.from_bytes(total, "little") - mpz.from_bytes(part, "little")
        return left.to_bytes(self.profile.blob_bytes, "little")


def cipher_of(key: PublicKey, profile: SlotProfile) -> Cipher:
    """The cipher of a task with this key and profile.

    Raises:
        WrongKeyError: the key's size is not the profile's; in the parts that need the key.
    """
    return Sealed(key, profile) if profile.sealed else Plain(profile)
