"""Threshold decryption: any t parties agree with the private key, t - 1 don't, a wrong share is named."""

from __future__ import annotations

import itertools
import math
import pickle  # noqa: TID251 - Ray pickles what crosses processes
import random
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.dealer import deal
from penrose_ray.crypto.key_share import KeyShare, read_share, write_share
from penrose_ray.crypto.packing import SlotProfile, profile
from penrose_ray.crypto.private_key import PrivateKey
from penrose_ray.crypto.threshold import ThresholdKey
from penrose_ray.errors import (
    CiphertextError,
    ConfigError,
    KeyFormatError,
    KeyMissingError,
    ShareError,
    WrongKeyError,
)

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.threshold import Partial

TINY = SlotProfile("tiny256", modulus_bits=256, ciphertexts=2, slot_bits=3)
"""Small enough for many ceremonies in one test; it protects nothing."""


@pytest.fixture(scope="module")
def tiny() -> PrivateKey:
    return PrivateKey(
        261037175082100598899823345900695723643, 327828545793810052732743097595836526123, allow_weak=True
    )


def seal(key: PrivateKey, plaintexts: tuple[int, ...]) -> bytes:
    return Encryptor(key.public_key, TINY, exponent="textbook").encrypt(plaintexts)


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_any_threshold_parties_agree_and_fewer_fail(tiny: PrivateKey, data: st.DataObject) -> None:
    parties = data.draw(st.integers(1, 6))
    threshold = data.draw(st.integers(1, parties))
    plaintexts = tuple(data.draw(st.integers(0, int(tiny.public_key.n) - 1)) for _ in range(2))
    shares = deal(tiny, threshold=threshold, parties=parties)
    key = shares[0].key
    blob = seal(tiny, plaintexts)
    partials = [share.decrypt(blob, TINY) for share in shares]
    for chosen in itertools.combinations(partials, threshold):
        assert key.combine(blob, TINY, chosen) == plaintexts
    assert key.combine(blob, TINY, partials) == plaintexts
    with pytest.raises(ShareError, match=f"{threshold - 1} right partial decryptions of {threshold}"):
        key.combine(blob, TINY, partials[: threshold - 1])


@given(threshold=st.integers(2, 5), seed=st.integers(0, 1 << 32))
@settings(max_examples=20, deadline=None)
def test_one_share_less_than_dealt_opens_nothing_by_interpolation(
    tiny: PrivateKey, threshold: int, seed: int
) -> None:
    """A party that lies about the threshold gets no plaintext: the product is not 1 modulo n."""
    draw = random.Random(seed)  # noqa: S311 - a seeded test
    shares = deal(tiny, threshold=threshold, parties=5, randbits=draw.getrandbits)
    key = shares[0].key
    lowered = ThresholdKey(key.public_key, threshold - 1, key.base, key.verifiers)
    blob = seal(tiny, (1, 2))
    partials = [share.decrypt(blob, TINY) for share in draw.sample(shares, threshold - 1)]
    with pytest.raises(ShareError, match="do not fit together"):
        lowered.combine(blob, TINY, partials)


def test_secret_of_the_dealer_is_what_shares_interpolate_to(tiny: PrivateKey) -> None:
    """Lagrange in fractions, from the definition: f(0) = 0 modulo m and 1 modulo n."""
    p, q = tiny.factors()
    n, m = p * q, (p // 2) * (q // 2)
    shares = deal(tiny, threshold=3, parties=5)
    chosen = [shares[i] for i in (0, 2, 4)]
    total = 0
    for share in chosen:
        others = [other.index for other in chosen if other is not share]
        weight = math.prod(others) * pow(math.prod(j - share.index for j in others), -1, n * m)
        total += int(share._secret) * weight
    assert total % (n * m) % m == 0
    assert total % (n * m) % n == 1


def test_real_size_two_of_three(key: PrivateKey) -> None:
    std = profile("std3072")
    shares = deal(key, threshold=2, parties=3)
    blob = Encryptor(key.public_key, std).encrypt((123, 1 << 3000))
    partials = [shares[i].decrypt(blob, std, context=b"release 7") for i in (2, 0)]
    assert shares[1].key.combine(blob, std, partials, context=b"release 7") == key.decrypt(blob, std)


def tamper(partial: Partial, field: str) -> Partial:
    raw = bytearray(getattr(partial, field)[1])
    raw[-1] ^= 1
    return msgspec.structs.replace(partial, **{field: (getattr(partial, field)[0], bytes(raw))})


@pytest.mark.parametrize("field", ["values", "challenges", "responses"])
def test_a_tampered_part_is_named_and_left_out(tiny: PrivateKey, field: str) -> None:
    shares = deal(tiny, threshold=2, parties=3)
    key, blob = shares[0].key, seal(tiny, (5, 6))
    one, two, three = (share.decrypt(blob, TINY) for share in shares)
    wrong = tamper(two, field)
    assert key.fault(blob, TINY, wrong) == "its proof does not hold"
    assert key.fault(blob, TINY, two) is None
    assert key.combine(blob, TINY, [one, wrong, three]) == (5, 6)
    with pytest.raises(ShareError, match="party 2: its proof does not hold"):
        key.combine(blob, TINY, [one, wrong])


def test_a_part_that_would_shift_the_plaintext_is_caught(tiny: PrivateKey) -> None:
    """Multiplying by 1 + n k changes the plaintext and keeps the sum well-formed: only the proof tells."""
    shares = deal(tiny, threshold=2, parties=2)
    key, blob = shares[0].key, seal(tiny, (5, 6))
    one, two = (share.decrypt(blob, TINY) for share in shares)
    n, n2 = int(tiny.public_key.n), int(tiny.public_key.n_squared)
    shifted = int.from_bytes(two.values[0], "big") * (1 + 7 * n) % n2
    hostile = msgspec.structs.replace(two, values=(shifted.to_bytes(64, "big"), two.values[1]))
    with pytest.raises(ShareError, match="party 2"):
        key.combine(blob, TINY, [one, hostile])


def test_a_proof_is_bound_to_blob_context_and_party(tiny: PrivateKey) -> None:
    shares = deal(tiny, threshold=2, parties=3)
    key, blob = shares[0].key, seal(tiny, (5, 6))
    partial = shares[0].decrypt(blob, TINY, context=b"a")
    assert key.fault(blob, TINY, partial, context=b"a") is None
    assert key.fault(blob, TINY, partial, context=b"b")
    assert key.fault(seal(tiny, (5, 6)), TINY, partial, context=b"a")
    assert key.fault(blob, TINY, msgspec.structs.replace(partial, index=2), context=b"a")


def test_malformed_parts_are_faults(tiny: PrivateKey) -> None:
    shares = deal(tiny, threshold=1, parties=2)
    key, blob = shares[0].key, seal(tiny, (5, 6))
    partial = shares[0].decrypt(blob, TINY)
    for index in (0, 3):
        assert "no party" in str(key.fault(blob, TINY, msgspec.structs.replace(partial, index=index)))
    assert "2 ciphertexts" in str(
        key.fault(blob, TINY, msgspec.structs.replace(partial, values=partial.values[:1]))
    )
    zero = msgspec.structs.replace(partial, values=(b"", b""))
    assert key.fault(blob, TINY, zero) == "its proof does not hold"


def test_what_is_no_ciphertext_is_not_decrypted(tiny: PrivateKey, key: PrivateKey) -> None:
    (share,) = deal(tiny, threshold=1, parties=1)
    with pytest.raises(CiphertextError):
        share.decrypt(bytes(128), TINY)
    with pytest.raises(CiphertextError):
        share.decrypt(int(tiny.factors()[0]).to_bytes(64, "little") * 2, TINY)
    with pytest.raises(WrongKeyError):
        share.decrypt(bytes(1536), profile("std3072"))
    assert key.public_key != tiny.public_key


def test_partial_decryptions_travel_as_bytes(tiny: PrivateKey) -> None:
    shares = deal(tiny, threshold=1, parties=1)
    blob = seal(tiny, (5, 6))
    raw = msgspec.msgpack.encode(shares[0].decrypt(blob, TINY))
    partial = msgspec.msgpack.decode(raw, type=type(shares[0].decrypt(blob, TINY)))
    assert shares[0].key.combine(blob, TINY, [partial]) == (5, 6)


@pytest.mark.parametrize(("threshold", "parties"), [(0, 3), (4, 3), (1, 65)])
def test_no_threshold_is_refused(tiny: PrivateKey, threshold: int, parties: int) -> None:
    with pytest.raises(ConfigError, match="no threshold"):
        deal(tiny, threshold=threshold, parties=parties)


def test_factors_that_are_not_safe_are_refused() -> None:
    """100,002 / 2 = 3 * 16,667."""
    with pytest.raises(KeyFormatError, match="safe"):
        deal(PrivateKey(100_003, 100_019, allow_weak=True), threshold=1, parties=1)


def test_shares_show_and_leak_nothing(tiny: PrivateKey) -> None:
    share = deal(tiny, threshold=2, parties=3)[0]
    assert str(share._secret) not in repr(share)
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(share)


def test_a_share_survives_its_file(tmp_path: Path, key: PrivateKey) -> None:
    path = tmp_path / "share"
    share = deal(key, threshold=2, parties=3)[1]
    write_share(path, share, passphrase=b"x")
    found = read_share(path, passphrase=b"x")
    assert (found.index, found.key, found._secret) == (2, share.key, share._secret)
    with pytest.raises(KeyFormatError):
        read_share(path, passphrase=b"y")
    with pytest.raises(KeyMissingError):
        read_share(tmp_path / "none")


def test_a_share_of_another_ceremony_is_refused(tiny: PrivateKey) -> None:
    one, two = (deal(tiny, threshold=2, parties=3)[0] for _ in range(2))
    with pytest.raises(KeyFormatError, match="not that of party 1"):
        KeyShare(one.key, 1, two._secret)


def test_threshold_key_survives_its_bytes(key: PrivateKey) -> None:
    public = deal(key, threshold=2, parties=3)[0].key
    raw = public.to_bytes()
    assert ThresholdKey.from_bytes(raw) == public
    for bad in (raw[:-1], b"", msgspec.msgpack.encode([2, *msgspec.msgpack.decode(raw)[1:]])):
        with pytest.raises(KeyFormatError):
            ThresholdKey.from_bytes(bad)
    fields = msgspec.msgpack.decode(raw)
    with pytest.raises(KeyFormatError, match="threshold 4 of 3"):
        ThresholdKey.from_bytes(msgspec.msgpack.encode([*fields[:2], 4, *fields[3:]]))
    with pytest.raises(KeyFormatError, match="outside the key's group"):
        ThresholdKey.from_bytes(msgspec.msgpack.encode([*fields[:3], bytes(768), fields[4]]))
