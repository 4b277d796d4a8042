"""The dealer of a threshold key: it knows the whole private key, once, and should forget it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import gmpy2
from gmpy2 import mpz

from penrose_ray.crypto.blinding import random_unit
from penrose_ray.crypto.key_share import KeyShare
from penrose_ray.crypto.safe_prime import is_safe_prime
from penrose_ray.crypto.threshold import ThresholdKey
from penrose_ray.errors import ConfigError, KeyFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.private_key import PrivateKey


def deal(
    private_key: PrivateKey,
    *,
    threshold: int,
    parties: int,
    randbits: Callable[[int], int] = secrets.randbits,
) -> tuple[KeyShare, ...]:
    """Split a private key into `parties` shares, any `threshold` of which decrypt together.

    Shamir's polynomial is over the integers modulo n m, where m is the order of the squares modulo n.

    Raises:
        ConfigError: not 1 <= threshold <= parties <= 64.
        KeyFormatError: a factor is not a safe prime.
    """
    if not 1 <= threshold <= parties <= 64:  # noqa: PLR2004 - an index fits its byte, a proof its time
        raise ConfigError(
            f"{threshold} of {parties} parties is no threshold.",
            remedy="Take 1 <= threshold <= parties <= 64.",
        )
    p, q = (mpz(factor) for factor in private_key.factors())
    if not (is_safe_prime(p) and is_safe_prime(q)):
        raise KeyFormatError(
            "The factors of this key are not safe primes.", remedy="Make one with: penrose keys new."
        )
    n, n2 = private_key.public_key.n, private_key.public_key.n_squared
    m = (p >> 1) * (q >> 1)
    # 0 modulo m wipes out blinding, 1 modulo n keeps the plaintext
    coefficients = [m * gmpy2.invert(m, n)]
    coefficients += [_uniform(n * m, randbits) for _ in range(threshold - 1)]
    dealt = [_value(coefficients, i) % (n * m) for i in range(1, parties + 1)]
    base = gmpy2.powmod(random_unit(n2, randbits), 2, n2)
    verifiers = tuple(gmpy2.powmod(base, gmpy2.fac(parties) * secret, n2) for secret in dealt)
    key = ThresholdKey(private_key.public_key, threshold, base, verifiers)
    return tuple(KeyShare(key, i, secret) for i, secret in enumerate(dealt, start=1))


def _value(coefficients: list[mpz], x: int) -> mpz:
    """The polynomial at x."""
    value = mpz(0)
    for coefficient in reversed(coefficients):
        value = value * x + coefficient
    return value


def _uniform(limit: mpz, randbits: Callable[[int], int]) -> mpz:
    """Uniform below a limit."""
    while True:
        candidate = mpz(randbits(limit.bit_length()))
        if candidate < limit:
            return candidate
