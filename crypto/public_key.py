"""The public key: the modulus n of a task, checked once and pinned by its fingerprint."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Final

import gmpy2
from gmpy2 import mpz

from penrose_ray.errors import KeyFormatError

VERSION: Final = 1
MODULUS_BITS: Final = (2048, 3072)
"""Sizes that a service accepts: 112-bit and 128-bit security."""

_SMALL_PRIMES: Final = gmpy2.primorial(1 << 16)
_HEADER_BYTES: Final = 3
_REMEDY: Final = "Fetch the task again, or make new keys with: penrose keys new."


class PublicKey:
    """A Paillier modulus with generator n + 1.

    Raises:
        KeyFormatError: n is even, of another size, prime, a perfect power, or has a factor below 65,536.
    """

    def __init__(self, n: int | mpz, *, allow_weak: bool = False) -> None:
        modulus = mpz(n)
        fault = _fault(modulus, allow_weak=allow_weak)
        if fault:
            raise KeyFormatError(f"This modulus is no public key: {fault}.", remedy=_REMEDY)
        self._n = modulus

    @property
    def n(self) -> mpz:
        """The modulus."""
        return self._n

    @cached_property
    def n_squared(self) -> mpz:
        """The modulus of ciphertexts."""
        return self._n * self._n

    @property
    def bits(self) -> int:
        """Size of n."""
        return self._n.bit_length()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of `to_bytes()`, 64 hexadecimal digits."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """Version (1 byte), size of n in bits (2 bytes, big-endian), n (big-endian)."""
        body = self._n.to_bytes((self.bits + 7) // 8, "big")
        return bytes([VERSION]) + self.bits.to_bytes(2, "big") + body

    @classmethod
    def from_bytes(cls, raw: bytes) -> PublicKey:
        """Read `to_bytes()` back.

        Raises:
            KeyFormatError: another version, a wrong length, or a modulus that is refused.
        """
        if len(raw) < _HEADER_BYTES or raw[0] != VERSION:
            raise KeyFormatError(
                f"These {len(raw)} bytes are no public key of version {VERSION}.", remedy=_REMEDY
            )
        bits = int.from_bytes(raw[1:_HEADER_BYTES], "big")
        body = raw[_HEADER_BYTES:]
        n = int.from_bytes(body, "big")
        if len(body) != (bits + 7) // 8 or n.bit_length() != bits:
            raise KeyFormatError(f"A public key of {bits} bits is cut short or padded.", remedy=_REMEDY)
        return cls(n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self._n == other._n

    def __hash__(self) -> int:
        return hash(self._n)

    def __repr__(self) -> str:
        return f"PublicKey({self.bits} bits, {self.fingerprint[:16]})"

    def __reduce__(self) -> tuple[object, ...]:
        """Rebuild from bytes in another process, validated again; weak keys stay where they were made."""
        return PublicKey.from_bytes, (self.to_bytes(),)


def _fault(n: mpz, *, allow_weak: bool) -> str | None:
    if n.bit_length() not in MODULUS_BITS and not allow_weak:
        return f"it has {n.bit_length()} bits, not {' or '.join(map(str, MODULUS_BITS))}"
    if n.is_even():
        return "it is even"
    if gmpy2.gcd(n, _SMALL_PRIMES) != 1:
        return "it has a factor below 65,536"
    if gmpy2.is_power(n):
        return "it is a perfect power"
    if gmpy2.is_prime(n):
        return "it is prime"
    return None
