"""Encryption against independent right values: the definition of Paillier, and the phe library."""

from __future__ import annotations

import os
import pickle  # noqa: TID251 - Ray pickles what crosses processes
import signal
import threading
from typing import TYPE_CHECKING, Literal

import gmpy2
import phe
import pytest
from gmpy2 import mpz

from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.ciphertext import join, split
from penrose_ray.crypto.fixed_base import FixedBase
from penrose_ray.crypto.packing import SlotProfile, pack, profile, unpack
from penrose_ray.crypto.private_key import PrivateKey
from penrose_ray.errors import CiphertextError, WrongKeyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.packing import Slots


@pytest.fixture(scope="session")
def encryptor(key: PrivateKey) -> Encryptor:
    return Encryptor(key.public_key, profile("std3072"))


def definition_decrypt(c: int, key: PrivateKey) -> int:
    """Decryption by lambda and mu (Paillier 1999, scheme 1), in plain integers."""
    p, q = key.factors()
    n, lam = p * q, (p - 1) * (q - 1)
    return (pow(c, lam, n * n) - 1) // n * pow(lam, -1, n) % n


@pytest.mark.parametrize("switch", ["0", "1"])
@pytest.mark.parametrize("exponent", ["half", "short", "textbook"])
def test_round_trip_of_every_exponent(
    monkeypatch: pytest.MonkeyPatch,
    switch: str,
    any_profile: SlotProfile,
    key_for: Callable[[SlotProfile], PrivateKey],
    draw_report: Callable[[int], Slots],
    exponent: Literal["half", "short", "textbook"],
) -> None:
    monkeypatch.setenv("PENROSE_NATIVE", switch)
    private = key_for(any_profile)
    report = draw_report(11)
    plaintexts = pack(report, any_profile)
    blob = Encryptor(private.public_key, any_profile, exponent=exponent).encrypt(plaintexts)
    assert len(blob) == any_profile.blob_bytes
    assert private.decrypt(blob, any_profile) == plaintexts
    assert unpack(private.decrypt(blob, any_profile), any_profile).bins.tolist() == report.bins.tolist()


def test_definition_and_phe_decrypt_ours(encryptor: Encryptor, key: PrivateKey, std: SlotProfile) -> None:
    n = int(key.public_key.n)
    plaintexts = (n - 1, 2**3000 + 17)
    ours = [int(c) for c in split(encryptor.encrypt(plaintexts), std)]
    assert [definition_decrypt(c, key) for c in ours] == list(plaintexts)
    oracle = phe.PaillierPrivateKey(phe.PaillierPublicKey(n), *key.factors())
    assert [oracle.raw_decrypt(c) for c in ours] == list(plaintexts)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_many_blobs_decrypt_in_their_order(
    key: PrivateKey, std: SlotProfile, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    """Groups of four ciphertexts, and rests; edges of the plaintext ring among them."""
    monkeypatch.setenv("PENROSE_NATIVE", switch)
    fresh = PrivateKey(*key.factors())
    n = int(key.public_key.n)
    zero = pow(1_234_567, n, n * n)
    pairs = [
        (0, 1),
        (n - 1, n // 2),
        (2**3000, 3),
        (int(key.factors()[0]), int(key.factors()[1])),
        (5, n - 2),
    ]
    blobs = [join([mpz((1 + m * n) * zero % (n * n)) for m in pair], std) for pair in pairs]
    for count in range(len(pairs) + 1):
        assert fresh.decrypt_many(blobs[:count], std) == pairs[:count]


def test_we_decrypt_phe(key: PrivateKey, std: SlotProfile) -> None:
    oracle = phe.PaillierPublicKey(int(key.public_key.n))
    plaintexts = (0, 123_456_789 << 2900)
    blob = join([oracle.raw_encrypt(m) for m in plaintexts], std)
    assert key.decrypt(blob, std) == plaintexts
    assert key.decrypt_many([blob, blob], std) == [plaintexts, plaintexts]


@pytest.mark.parametrize("plaintexts", [(0,), (0, 0, 0), (-1, 0), (0, 1 << 3072)])
def test_plaintexts_outside_the_ring_are_refused(encryptor: Encryptor, plaintexts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="plaintext"):
        encryptor.encrypt(plaintexts)


def test_the_same_report_never_looks_the_same(
    encryptor: Encryptor, key: PrivateKey, std: SlotProfile
) -> None:
    blobs = {encryptor.encrypt((5, 6)) for _ in range(20)}
    blob = blobs.pop()
    blobs |= {encryptor.rerandomise(blob) for _ in range(20)}
    assert len(blobs) == 39
    assert blob not in blobs
    assert set(key.decrypt_many([*blobs], std)) == {(5, 6)}


def test_a_key_of_another_size_is_refused(key2048: PrivateKey, std: SlotProfile) -> None:
    with pytest.raises(WrongKeyError, match="3072"):
        Encryptor(key2048.public_key, std)
    with pytest.raises(WrongKeyError, match="3072"):
        key2048.decrypt(bytes(1536), std)


def test_injected_randomness_makes_known_ciphertexts(key: PrivateKey, std: SlotProfile) -> None:
    """x = 2 gives hs = (-4)^n, every r = 3 gives c = (1 + m n) hs^3: computed here from the definition."""
    n = int(key.public_key.n)
    encryptor = Encryptor(
        key.public_key, std, exponent="half", randbits=lambda bits: 2 if bits == 3072 else 3
    )
    hs = pow(-4, n, n * n)
    expected = [(1 + m * n) * pow(hs, 3, n * n) % (n * n) for m in (7, 8)]
    assert [int(c) for c in split(encryptor.encrypt((7, 8)), std)] == expected


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("exponent_bits", [1, 8, 13, 64])
def test_fixed_base_is_a_power(exponent_bits: int, *, small: bool) -> None:
    modulus, base = gmpy2.mpz(10**40 + 121), gmpy2.mpz(987_654_321)
    table = FixedBase(base, modulus, exponent_bits, small=small)
    exponents = [0, 1, (1 << exponent_bits) - 1, (1 << exponent_bits) // 3]
    assert table.powers(exponents) == [pow(987_654_321, e, 10**40 + 121) for e in exponents]


def test_pool_is_used_once_and_then_falls_back(key: PrivateKey, std: SlotProfile) -> None:
    encryptor = Encryptor(key.public_key, std, exponent="short")
    encryptor.fill_pool(2)
    assert encryptor.pool_size == 2
    blobs = {encryptor.encrypt((1, 1)) for _ in range(4)}
    assert encryptor.pool_size == 0
    assert len(blobs) == 4
    factors = [c for blob in blobs for c in split(blob, std)]
    assert len(set(factors)) == 8
    assert set(key.decrypt_many([*blobs], std)) == {(1, 1)}


def test_pool_is_empty_after_fork(key: PrivateKey, std: SlotProfile) -> None:
    encryptor = Encryptor(key.public_key, std, exponent="short")
    encryptor.fill_pool(1)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:  # whatever it raises, it must not go on as a second pytest
            os.write(writing, bytes([encryptor.pool_size]) + encryptor.encrypt((1, 1)))
        finally:
            os._exit(0)
    os.close(writing)
    late = threading.Timer(300, os.kill, [child, signal.SIGKILL])
    late.start()
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    late.cancel()
    assert os.waitpid(child, 0)[1] == 0
    assert answer, "the child could not encrypt"
    assert answer[0] == 0
    assert encryptor.pool_size == 1
    assert answer[1:] != encryptor.encrypt((1, 1))


def test_pool_cannot_be_copied(encryptor: Encryptor) -> None:
    with pytest.raises(TypeError, match="single use"):
        pickle.dumps(encryptor)


@pytest.mark.parametrize("bad", ["zero", "modulus", "too-large"])
def test_decryption_refuses_what_is_outside_the_group(key: PrivateKey, std: SlotProfile, bad: str) -> None:
    p, _ = key.factors()
    n2 = int(key.public_key.n_squared)
    wrong = {"zero": 0, "modulus": p * 12_345, "too-large": n2}[bad]
    blob = (1).to_bytes(768, "little") + wrong.to_bytes(768, "little")
    with pytest.raises(CiphertextError, match="outside the group"):
        key.decrypt(blob, std)


def test_decryption_refuses_another_length(key: PrivateKey, std: SlotProfile) -> None:
    with pytest.raises(CiphertextError, match="1536 bytes, this one 1535"):
        key.decrypt(bytes(1535), std)
