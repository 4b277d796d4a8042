"""Sealing by HPKE: against another implementation, which is checked by the RFC's vectors."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

from penrose_ray.crypto.envelope import OVERHEAD_BYTES, ServiceKey, seal
from penrose_ray.errors import EnvelopeError, KeyFormatError, KeyMissingError, KeyPermissionError

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "rfc9180.json").read_text())
ORACLE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
PRIVATE = bytes(range(32))
KEY = ServiceKey(PRIVATE)
INFO = b"what must stay with it"


def oracle_private(raw: bytes) -> object:
    return ORACLE.kem.deserialize_private_key(raw)


@pytest.mark.parametrize("entry", VECTORS["encryptions"], ids=lambda entry: entry["aad"])
def test_the_oracle_opens_the_rfc_s_texts(entry: dict[str, str]) -> None:
    recipient = ORACLE.create_recipient_context(
        bytes.fromhex(VECTORS["enc"]),
        oracle_private(bytes.fromhex(VECTORS["skRm"])),
        info=bytes.fromhex(VECTORS["info"]),
    )
    for each in VECTORS["encryptions"]:
        opened = recipient.open(bytes.fromhex(each["ct"]), aad=bytes.fromhex(each["aad"]))
        assert opened == bytes.fromhex(VECTORS["pt"])
        if each == entry:
            return


@given(st.binary(max_size=2000))
def test_the_oracle_opens_what_is_sealed_here_and_the_other_way_round(text: bytes) -> None:
    sealed = seal(text, KEY.public, INFO)
    recipient = ORACLE.create_recipient_context(sealed[:32], oracle_private(PRIVATE), info=INFO)
    assert recipient.open(sealed[32:]) == text
    assert len(sealed) == len(text) + OVERHEAD_BYTES

    encapsulated, sender = ORACLE.create_sender_context(
        ORACLE.kem.deserialize_public_key(KEY.public), info=INFO
    )
    assert KEY.open(encapsulated + sender.seal(text), INFO) == text


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: (KEY, sealed[:-1] + bytes([sealed[-1] ^ 1]), INFO),
        lambda sealed: (KEY, sealed[:40], INFO),
        lambda _: (KEY, b"", INFO),
        lambda sealed: (ServiceKey(b"k" * 32), sealed, INFO),
        lambda sealed: (KEY, sealed, b"another report"),
    ],
    ids=["changed", "cut", "empty", "another key", "another report"],
)
def test_anything_else_does_not_open(change: object) -> None:
    key, sealed, info = change(seal(b"tags", KEY.public, INFO))  # type: ignore[operator]
    with pytest.raises(EnvelopeError, match="do not open"):
        key.open(sealed, info)


@pytest.mark.parametrize("key", [b"short", bytes(32)], ids=["short", "of low order"])
def test_what_is_no_key_is_refused(key: bytes) -> None:
    with pytest.raises(EnvelopeError, match="key is none"):
        seal(b"tags", key, INFO)


def test_the_key_is_made_once_private_and_never_pickled(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "service.key"
    with pytest.raises(KeyMissingError):
        ServiceKey.read(path)
    made = ServiceKey.own(path)
    assert ServiceKey.own(path).public == ServiceKey.read(path).public == made.public
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with pytest.raises(TypeError, match="cannot be pickled"):
        copy.copy(made)
    path.chmod(0o640)
    with pytest.raises(KeyPermissionError):
        ServiceKey.own(path)


def test_a_private_key_of_another_length_is_refused() -> None:
    with pytest.raises(KeyFormatError, match="no service key"):
        ServiceKey(b"short")
