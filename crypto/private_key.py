"""The private key. Only the design server, the gatekeeper and the key commands import this module."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NoReturn

import gmpy2
from gmpy2 import mpz

from penrose_ray.crypto.ciphertext import require_units
from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.public_key import PublicKey
from penrose_ray.crypto.safe_prime import two_safe_primes
from penrose_ray.errors import KeyFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penrose_ray.crypto.kernel.twin import TwinPower
    from penrose_ray.crypto.packing import SlotProfile

_TOGETHER: Final = 4
"""Ciphertexts that the kernel takes at once."""


class PrivateKey:
    """The factors of a Paillier modulus.

    `allow_weak` accepts a modulus of any size and is for tests and benchmarks only.

    Raises:
        KeyFormatError: p and q are not two prime numbers 3 modulo 4 of one size with gcd(p - 1, q - 1) = 2.
    """

    def __init__(self, p: int | mpz, q: int | mpz, *, allow_weak: bool = False) -> None:
        fault = _fault(mpz(p), mpz(q))
        if fault:
            raise KeyFormatError(
                f"These factors make no private key: {fault}.", remedy="Restore the key file from its backup."
            )
        self._p, self._q = mpz(p), mpz(q)
        self._public_key = PublicKey(self._p * self._q, allow_weak=allow_weak)
        self._p_part = _Residue(self._p, self._q)
        self._q_part = _Residue(self._q, self._p)
        self._q_inverse = gmpy2.invert(self._q, self._p)

    @classmethod
    def generate(cls, bits: int = 3072, *, progress: Callable[[str], None] | None = None) -> PrivateKey:
        """A new key from two safe primes; seconds at 3,072 bits. `progress` gets lines of text."""
        return cls(*two_safe_primes(bits // 2, progress=progress))

    @property
    def public_key(self) -> PublicKey:
        """The key that may be given to anyone."""
        return self._public_key

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the public key."""
        return self._public_key.fingerprint

    def factors(self) -> tuple[int, int]:
        """The factors p and q, for the key file and the dealer of threshold shares."""
        return int(self._p), int(self._q)

    def decrypt(self, blob: bytes, profile: SlotProfile) -> tuple[int, ...]:
        """Plaintexts of one blob.

        Raises:
            CiphertextError: wrong length or range, or a ciphertext outside the group.
            WrongKeyError: the key's size is not the profile's.
        """
        return self.decrypt_many([blob], profile)[0]

    def decrypt_many(self, blobs: Sequence[bytes], profile: SlotProfile) -> list[tuple[int, ...]]:
        """Plaintexts of each blob, two at a time where the native kernel is; raises like `decrypt`."""
        key, size = self._public_key, profile.ciphertexts
        ciphertexts = [c for blob in blobs for c in require_units(blob, profile, key)]
        plaintexts = [self._combine(*pair) for pair in self._powers(ciphertexts)]
        return [tuple(plaintexts[at : at + size]) for at in range(0, len(plaintexts), size)]

    def _powers(self, ciphertexts: Sequence[mpz]) -> Iterator[tuple[mpz, mpz]]:
        """c^(p - 1) modulo p^2 and c^(q - 1) modulo q^2."""
        if self._twin is None:
            for c in ciphertexts:
                yield self._p_part.power(c), self._q_part.power(c)
            return
        for at in range(0, len(ciphertexts), _TOGETHER):
            yield from self._twin.powers(ciphertexts[at : at + _TOGETHER])

    @cached_property
    def _twin(self) -> TwinPower | None:
        return native.twin_power(self._p, self._q)

    def _combine(self, p_power: mpz, q_power: mpz) -> int:
        """The plaintext, by the Chinese remainder theorem."""
        low = self._q_part.message(q_power)
        high = (self._p_part.message(p_power) - low) * self._q_inverse % self._p
        return int(low + high * self._q)

    def __repr__(self) -> str:
        return f"PrivateKey({self._public_key!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse: a private key leaves its process through a key file only."""
        raise TypeError("a PrivateKey cannot be pickled: write it with penrose_ray.crypto.keyfile")


class _Residue:
    """Decryption modulo one prime factor (Paillier 1999, section 7)."""

    def __init__(self, prime: mpz, other: mpz) -> None:
        self._prime = prime
        self._square = prime * prime
        # L((1 + n)^(p-1) mod p^2) = (p - 1) q = -q modulo p
        self._scale = gmpy2.invert(-other % prime, prime)

    def power(self, c: mpz) -> mpz:
        """c^(prime - 1) modulo the prime's square: 1 + L prime."""
        return gmpy2.powmod(c, self._prime - 1, self._square)

    def message(self, power: mpz) -> mpz:
        """The plaintext modulo the prime."""
        return power // self._prime * self._scale % self._prime


def _fault(p: mpz, q: mpz) -> str | None:
    if p == q or p.bit_length() != q.bit_length():
        return "they are equal or differ in size"
    if p & 3 != 3 or q & 3 != 3:  # noqa: PLR2004 - 3 modulo 4
        return "one of them is not 3 modulo 4"
    if not (gmpy2.is_prime(p) and gmpy2.is_prime(q)):
        return "one of them is not prime"
    if gmpy2.gcd(p - 1, q - 1) != 2:  # noqa: PLR2004 - only the factor 2 in common
        return "p - 1 and q - 1 have a factor in common"
    return None
