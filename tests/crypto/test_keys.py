from __future__ import annotations

import math
import pickle  # noqa: TID251 - Ray pickles what crosses processes
import random
from typing import TYPE_CHECKING

import gmpy2
import pytest

from penrose_ray.crypto.private_key import PrivateKey
from penrose_ray.crypto.public_key import PublicKey
from penrose_ray.crypto.safe_prime import sieve, two_safe_primes
from penrose_ray.errors import KeyFormatError

if TYPE_CHECKING:
    from collections.abc import Callable


def prime_of(bits: int, seed: int) -> int:
    start = random.Random(seed).getrandbits(bits) | (7 << (bits - 3)) | 1  # noqa: S311 - a seeded test
    while not gmpy2.is_prime(start):
        start += 2
    return start


@pytest.mark.parametrize(
    ("n", "fault"),
    [
        (lambda n: n - 1, "even"),
        (lambda n: n >> 1 | 1, "3071 bits"),
        (lambda n: n - n % (2 * 65_521) + 65_521, "factor below"),
        (lambda _: prime_of(1536, 1) ** 2, "perfect power"),
        (lambda _: prime_of(1024, 2) ** 3, "perfect power"),
        (lambda _: prime_of(3072, 3), "prime"),
    ],
)
def test_a_modulus_that_protects_nothing_is_refused(
    key: PrivateKey, n: Callable[[int], int], fault: str
) -> None:
    with pytest.raises(KeyFormatError, match=fault):
        PublicKey(n(int(key.public_key.n)))


def test_weak_sizes_need_a_word(key: PrivateKey) -> None:
    small = prime_of(512, 4) * prime_of(512, 5)
    with pytest.raises(KeyFormatError, match="bits"):
        PublicKey(small)
    assert PublicKey(small, allow_weak=True).n == small
    assert key.public_key.bits == 3072


def test_public_key_survives_its_bytes_and_pickle(key: PrivateKey) -> None:
    public = key.public_key
    raw = public.to_bytes()
    assert raw[0] == 1
    assert len(raw) == 3 + 384
    for copy in (PublicKey.from_bytes(raw), pickle.loads(pickle.dumps(public))):  # noqa: S301 - our own bytes
        assert copy == public
        assert hash(copy) == hash(public)
        assert copy.fingerprint == public.fingerprint


@pytest.mark.parametrize("cut", [lambda raw: raw[:-1], lambda raw: b"\x02" + raw[1:], lambda _: b"\x01\x0c"])
def test_damaged_public_key_bytes_are_refused(key: PrivateKey, cut: Callable[[bytes], bytes]) -> None:
    with pytest.raises(KeyFormatError):
        PublicKey.from_bytes(cut(key.public_key.to_bytes()))


def test_frozen_fingerprint(key: PrivateKey) -> None:
    assert key.public_key.fingerprint == "e6c17661d669b87767b1a31139eb719cabd7a543163b0350b5b4e741da0551d6"


def test_generated_key_has_distinct_safe_primes_three_modulo_four() -> None:
    lines: list[str] = []
    generated = PrivateKey.generate(2048, progress=lines.append)
    p, q = generated.factors()
    for prime in (p, q):
        assert gmpy2.is_prime(prime)
        assert gmpy2.is_prime((prime - 1) // 2)
        assert prime % 4 == 3
        assert prime.bit_length() == 1024
    assert math.gcd(p - 1, q - 1) == 2
    assert generated.public_key.bits == 2048
    assert "2 of 2 safe primes found" in lines[-1]


def test_generation_passes_on_an_error_of_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: int) -> None:
        raise MemoryError

    monkeypatch.setattr("penrose_ray.crypto.safe_prime._candidates", broken)
    with pytest.raises(MemoryError):
        two_safe_primes(512)


def test_sieve_drops_exactly_what_has_a_small_factor() -> None:
    start = gmpy2.mpz(10**12 + 1)
    window, limit = 2_000, 300
    primes = [prime for prime in range(3, limit) if gmpy2.is_prime(prime)]
    expected = [
        i
        for i in range(window)
        if all((start + 2 * i) % prime and (2 * (start + 2 * i) + 1) % prime for prime in primes)
    ]
    assert sieve(start, window, limit).tolist() == expected


@pytest.mark.parametrize(
    ("p", "q", "fault"),
    [
        (23, 23, "equal"),
        (23, 47, "differ in size"),
        (23, 29, "3 modulo 4"),
        (23, 27, "not prime"),
        (19, 31, "factor in common"),
    ],
)
def test_factors_that_make_no_key_are_refused(p: int, q: int, fault: str) -> None:
    with pytest.raises(KeyFormatError, match=fault):
        PrivateKey(p, q, allow_weak=True)


def test_private_key_shows_and_leaks_nothing(key: PrivateKey) -> None:
    p, q = key.factors()
    shown = repr(key) + str(key) + f"{key}"
    assert str(p) not in shown
    assert f"{q:x}" not in shown
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(key)
