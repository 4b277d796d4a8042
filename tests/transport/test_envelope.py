"""Tags sealed by HPKE: against another implementation, which is checked by the RFC's vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pyhpke import AEADId, CipherSuite, KDFId, KEMId

from penrose_ray.errors import WireError
from penrose_ray.transport.envelope import OVERHEAD_BYTES, Tags, open_tags, seal_tags
from penrose_ray.types import ReportId, TaskId

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "rfc9180.json").read_text())
ORACLE = CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
TASK, REPORT = TaskId(b"t" * 32), ReportId(b"r" * 32)
TAGS = Tags("Test GPU", "g8-mended-v1", bytes(400), 1)
INFO = b"penrose tags\x01" + TASK + REPORT


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


def test_the_oracle_opens_what_is_sealed_here() -> None:
    sealed = seal_tags(TAGS, PUBLIC, TASK, REPORT)
    recipient = ORACLE.create_recipient_context(
        sealed[:32], oracle_private(KEY.private_bytes_raw()), info=INFO
    )
    raw = recipient.open(sealed[32:])
    assert raw[-1:] == b"\x01"
    assert len(sealed) == len(raw) + OVERHEAD_BYTES


def test_what_the_oracle_seals_is_opened_here() -> None:
    import msgspec  # noqa: PLC0415 - the plain encoding is wanted once

    sealed, sender = ORACLE.create_sender_context(ORACLE.kem.deserialize_public_key(PUBLIC), info=INFO)
    assert open_tags(sealed + sender.seal(msgspec.msgpack.encode(TAGS)), KEY, TASK, REPORT) == TAGS


@given(model=st.text(max_size=30), signature=st.binary(max_size=400), counter_set=st.integers(0, 255))
@hypothesis_settings(deadline=None)
def test_tags_come_back_whole(model: str, signature: bytes, counter_set: int) -> None:
    tags = Tags(model, "scheme", signature, counter_set)
    assert open_tags(seal_tags(tags, PUBLIC, TASK, REPORT), KEY, TASK, REPORT) == tags


def test_two_reports_of_a_class_have_nothing_in_common() -> None:
    first, second = (seal_tags(TAGS, PUBLIC, TASK, REPORT) for _ in range(2))
    assert len(first) == len(second)
    assert sum(a == b for a, b in zip(first, second, strict=True)) < 20
    assert TAGS.signature not in first


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: (sealed[:-1] + bytes([sealed[-1] ^ 1]), KEY, TASK, REPORT),
        lambda sealed: (sealed[:40], KEY, TASK, REPORT),
        lambda _: (b"", KEY, TASK, REPORT),
        lambda sealed: (sealed, X25519PrivateKey.generate(), TASK, REPORT),
        lambda sealed: (sealed, KEY, TaskId(bytes(32)), REPORT),
        lambda sealed: (sealed, KEY, TASK, ReportId(bytes(32))),
    ],
    ids=["changed", "cut", "empty", "another key", "another task", "another report"],
)
def test_anything_else_does_not_open(change: object) -> None:
    with pytest.raises(WireError, match="do not open"):
        open_tags(*change(seal_tags(TAGS, PUBLIC, TASK, REPORT)))  # type: ignore[operator]


def test_what_is_no_key_is_refused() -> None:
    with pytest.raises(WireError, match="key is none"):
        seal_tags(TAGS, b"short", TASK, REPORT)
