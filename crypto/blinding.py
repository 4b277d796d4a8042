"""Encryption: c = (1 + m n) hs^r mod n^2 after Damgard, Jurik and Nielsen (2010, section 4).

Every encryptor draws its own hs, a random square of the key's group, so nobody has to be trusted for it;
ciphertexts under different hs of one key add up like any others.
"""

from __future__ import annotations

import os
import secrets
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Protocol

import gmpy2
from gmpy2 import mpz

from penrose_ray.crypto.ciphertext import join, require_size, split
from penrose_ray.crypto.fixed_base import FixedBase
from penrose_ray.crypto.kernel import native

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penrose_ray.crypto.kernel.comb import Comb
    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.crypto.public_key import PublicKey

Exponent = Literal["half", "short", "textbook"]

_SHORT_BITS: Final = {2048: 448, 3072: 512}
"""Four times the security level: the generic square-root attack then costs twice the level's bits."""


class _Source(Protocol):
    """Makes fresh encryptions of zero."""

    def blindings(self, count: int) -> list[mpz]:
        """That many independent ones."""
        ...


class _Textbook:
    """r^n mod n^2 with r uniform in the group: no assumption beyond Paillier's own, the slowest."""

    def __init__(self, key: PublicKey, randbits: Callable[[int], int]) -> None:
        self._key = key
        self._randbits = randbits

    def blindings(self, count: int) -> list[mpz]:
        n, n2 = self._key.n, self._key.n_squared
        return [gmpy2.powmod(random_unit(n, self._randbits), n, n2) for _ in range(count)]


class _FixedBaseBlinding:
    """hs^r from tables, r uniform of a fixed number of bits."""

    def __init__(
        self, key: PublicKey, exponent_bits: int, randbits: Callable[[int], int], *, small: bool
    ) -> None:
        self._key = key
        self._exponent_bits = exponent_bits
        self._randbits = randbits
        self._small = small

    @cached_property
    def _power(self) -> Comb | FixedBase:
        """Tables, built when first needed: 0.1 s with the kernel, up to 0.7 s without."""
        n, n2 = self._key.n, self._key.n_squared
        root = random_unit(n, self._randbits)
        hs = gmpy2.powmod(n - root * root % n, n, n2)
        if self._small:
            return FixedBase(hs, n2, self._exponent_bits, small=True)
        comb = native.comb(hs, n2, self._key.bits // 4, self._exponent_bits)
        return comb or FixedBase(hs, n2, self._exponent_bits)

    def blindings(self, count: int) -> list[mpz]:
        return self._power.powers([self._randbits(self._exponent_bits) for _ in range(count)])


def random_unit(n: mpz, randbits: Callable[[int], int]) -> mpz:
    """Uniform in the group of units of n."""
    bits = n.bit_length()
    while True:
        candidate = mpz(randbits(bits))
        if 0 < candidate < n and gmpy2.gcd(candidate, n) == 1:
            return candidate


class Encryptor:
    """Encrypts and re-randomises under one public key.

    `exponent` picks the randomness: "half" (|n|/2 bits, the published proof), "short" (448 or 512 bits,
    a stronger assumption) or "textbook" (r^n). `small` is for processes that seal now and then: tables
    of 5 MB instead of 38, and no native kernel, whose compiler takes 40. `randbits` is for tests and vectors
    only.

    Raises:
        WrongKeyError: the key's size is not the profile's.
    """

    def __init__(
        self,
        public_key: PublicKey,
        profile: SlotProfile,
        *,
        exponent: Exponent = "half",
        small: bool = False,
        randbits: Callable[[int], int] = secrets.randbits,
    ) -> None:
        require_size(public_key, profile)
        self._key = public_key
        self._profile = profile
        self._source = _source(public_key, exponent, randbits, small=small)
        self._pool: deque[mpz] = deque()
        self._pool_pid = os.getpid()

    @property
    def pool_size(self) -> int:
        """Reports that the pool can still blind in this process."""
        return len(self._own_pool()) // self._profile.ciphertexts

    def fill_pool(self, count: int) -> None:
        """Precompute blinding for `count` more reports; kept in memory, used once each."""
        self._own_pool().extend(self._source.blindings(count * self._profile.ciphertexts))

    def encrypt(self, plaintexts: Sequence[int]) -> bytes:
        """The blob of one report: fixed-width little-endian ciphertexts.

        Raises:
            ValueError: not one plaintext per ciphertext of the profile, or one outside 0 to n - 1.
        """
        n, n2 = self._key.n, self._key.n_squared
        if len(plaintexts) != self._profile.ciphertexts:
            raise ValueError(
                f"{self._profile.name} has {self._profile.ciphertexts} plaintexts, got {len(plaintexts)}"
            )
        if not all(0 <= plaintext < n for plaintext in plaintexts):
            raise ValueError("a plaintext is outside 0 to n - 1")
        pairs = zip(plaintexts, self._blindings(), strict=True)
        return join([_blind(m, o, n, n2) for m, o in pairs], self._profile)

    def encrypt_many(self, plaintexts: Sequence[Sequence[int]]) -> list[bytes]:
        """Blobs of many reports, their blinding made together; raises like `encrypt`."""
        self.fill_pool(max(0, len(plaintexts) - self.pool_size))
        return [self.encrypt(each) for each in plaintexts]

    def rerandomise(self, blob: bytes) -> bytes:
        """A fresh blob of the same plaintexts: nobody can tell that the two belong together."""
        n2 = self._key.n_squared
        pairs = zip(split(blob, self._profile), self._blindings(), strict=True)
        return join([c * o % n2 for c, o in pairs], self._profile)

    def _own_pool(self) -> deque[mpz]:
        """The pool of this process: a child of fork starts empty, so that no blinding serves twice."""
        if self._pool_pid != os.getpid():
            self._pool = deque()
            self._pool_pid = os.getpid()
        return self._pool

    def _blindings(self) -> list[mpz]:
        pool, count = self._own_pool(), self._profile.ciphertexts
        taken = [pool.popleft() for _ in range(count)] if len(pool) >= count else []
        return taken or self._source.blindings(count)

    def __reduce__(self) -> NoReturn:
        """Refuse: a copied pool would be used twice."""
        raise TypeError("an Encryptor cannot be pickled: its blinding is single use")


def _blind(plaintext: int, zero: mpz, n: mpz, n_squared: mpz) -> mpz:
    """(1 + m n) o modulo n^2 is o + (m o mod n) n, short of one subtraction: products of half the width."""
    product = zero + zero % n * plaintext % n * n
    return product - n_squared if product >= n_squared else product


def _source(key: PublicKey, exponent: Exponent, randbits: Callable[[int], int], *, small: bool) -> _Source:
    if exponent == "textbook":
        return _Textbook(key, randbits)
    half = key.bits // 2
    bits = half if exponent == "half" else _SHORT_BITS.get(key.bits, half)
    return _FixedBaseBlinding(key, bits, randbits, small=small)
