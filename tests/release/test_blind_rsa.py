"""Known answers of RFC 9474, appendix A, and what a signer must refuse."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from penrose_ray.errors import KeyFormatError, TokenError
from penrose_ray.release.blind_rsa import EXPONENT, SigningKey, VerifyKey, pss_encode

if TYPE_CHECKING:
    from collections.abc import Callable

FROZEN = Path(__file__).parents[1] / "vectors" / "rfc9474_deterministic.json"
Vector = dict[str, object]


def number(vector: Vector, name: str) -> int:
    return int(str(vector[name]), 16)


def raw(vector: Vector, name: str) -> bytes:
    return bytes.fromhex(str(vector[name]).removeprefix("0x"))


def pinned(salt: bytes, blinding: bytes) -> Callable[[int], bytes]:
    """Random bytes that are known: first the salt (if one is drawn), then the blinding."""
    waiting = [salt] * bool(salt) + [blinding]
    return lambda count: waiting.pop(0).rjust(count, b"\0")


def check(vector: Vector) -> None:
    key = SigningKey(number(vector, "p"), number(vector, "q"))
    assert key.public.modulus == number(vector, "n")
    message, salt = raw(vector, "input_msg"), raw(vector, "salt")
    if vector.get("encoded_msg"):
        assert pss_encode(message, salt, number(vector, "n").bit_length() - 1) == raw(vector, "encoded_msg")
    r = pow(number(vector, "inv"), -1, number(vector, "n"))
    random_bytes = pinned(salt, r.to_bytes(key.public.size_bytes, "big"))
    blinded = key.public.blind(message, salt_bytes=len(salt), random_bytes=random_bytes)
    assert blinded.request == raw(vector, "blinded_msg")
    assert blinded.unblind == number(vector, "inv")
    answer = key.sign(blinded.request)
    assert answer == raw(vector, "blind_sig")
    assert key.public.finalise(message, blinded, answer, salt_bytes=len(salt)) == raw(vector, "sig")


def test_the_answers_of_the_variant_in_use() -> None:
    check(json.loads(FROZEN.read_text())["vector"])


@pytest.mark.skipif("PENROSE_TRACES" not in os.environ, reason="PENROSE_TRACES is not set")
def test_the_answers_of_all_four_variants() -> None:
    path = Path(os.environ["PENROSE_TRACES"]) / "vectors" / "rfc9474_blind_rsa.json"
    vectors = json.loads(path.read_text())
    assert len(vectors) == 4
    for vector in vectors:
        check(vector)


@pytest.fixture(scope="module")
def key() -> SigningKey:
    vector = json.loads(FROZEN.read_text())["vector"]
    return SigningKey(number(vector, "p"), number(vector, "q"))


def test_a_signature_is_an_ordinary_pss_signature(key: SigningKey) -> None:
    blinded = key.public.blind(b"message")
    signature = key.public.finalise(b"message", blinded, key.sign(blinded.request))
    public = rsa.RSAPublicNumbers(EXPONENT, int(key.public.modulus)).public_key()
    public.verify(signature, b"message", padding.PSS(padding.MGF1(hashes.SHA384()), 48), hashes.SHA384())


def test_a_signature_of_another_message_or_plus_the_modulus_is_refused(key: SigningKey) -> None:
    blinded = key.public.blind(b"message")
    signature = key.public.finalise(b"message", blinded, key.sign(blinded.request))
    shifted = int.from_bytes(signature, "big") + int(key.public.modulus)
    for message, given in (
        (b"other", signature),
        (b"message", signature[:-1]),
        (b"message", b"\0" + signature),
        (b"message", shifted.to_bytes(len(signature) + 1, "big")),
    ):
        with pytest.raises(TokenError):
            key.public.verify(message, given)


def test_a_wrong_answer_is_not_taken_for_a_token(key: SigningKey) -> None:
    blinded = key.public.blind(b"message")
    for answer in (key.sign(key.public.blind(b"other").request), blinded.request, b"short"):
        with pytest.raises(TokenError):
            key.public.finalise(b"message", blinded, answer)


def test_requests_outside_the_group_are_refused(key: SigningKey) -> None:
    size = key.public.size_bytes
    for request in (bytes(size), b"\xff" * size, b"\x01" * (size - 1), b""):
        with pytest.raises(TokenError):
            key.sign(request)


def test_two_blindings_of_one_message_have_nothing_in_common(key: SigningKey) -> None:
    first, second = (key.public.blind(b"message") for _ in range(2))
    assert first.request != second.request
    assert first.unblind != second.unblind


def test_small_and_even_moduli_are_refused() -> None:
    for modulus in ((1 << 2047) - 1, 1 << 2047):
        with pytest.raises(KeyFormatError):
            VerifyKey(modulus)
