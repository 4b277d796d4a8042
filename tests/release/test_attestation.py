"""Quotes of a real software TPM, checked without a TPM library, and what is refused."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

import msgspec
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from release.software_tpm import software_tpm

from penrose_ray.errors import AttestationError
from penrose_ray.release import attestation
from penrose_ray.release.attestation import PCRS, Quote, check, decode
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TASK = TaskId(b"t" * 32)
KEY = ec.derive_private_key(12345, ec.SECP256R1())
POINT = KEY.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
STATE = hashlib.sha256(b"".join(bytes([n]) * 32 for n in range(len(PCRS)))).digest()


def made(
    *, nonce: bytes = TASK, pcrs: tuple[int, ...] = PCRS, state: bytes = STATE, magic: int = 0xFF544347
) -> Quote:
    """A quote laid out by hand after the TPM 2.0 Library, part 2."""
    bitmap = sum(1 << n for n in pcrs).to_bytes(3, "little")
    body = struct.pack(">IH", magic, 0x8018)
    body += struct.pack(">H", 34) + b"s" * 34 + struct.pack(">H", len(nonce)) + nonce
    body += bytes(17) + bytes(8)
    body += struct.pack(">IHB", 1, 0x000B, 3) + bitmap + struct.pack(">H", 32) + state
    r, s = decode_dss_signature(KEY.sign(body, ec.ECDSA(hashes.SHA256())))
    return Quote(attest=body, r=r, s=s, key=POINT)


def test_a_quote_of_the_expected_state_for_this_task_is_accepted() -> None:
    quote = made()
    assert decode(quote.encode()) == quote
    check(quote, TASK, trusted_key=POINT, pcr_digest=STATE)


@pytest.mark.parametrize(
    ("quote", "reason"),
    [
        (made(nonce=b"u" * 32), "another task"),
        (made(pcrs=(16,)), r"registers \[16\]"),
        (made(state=bytes(32)), "state is 0000"),
        (made(magic=0xFF544346), "no quote"),
        (msgspec.structs.replace(made(), r=5), "signature"),
        (msgspec.structs.replace(made(), attest=made().attest + b"x"), "signature"),
        (msgspec.structs.replace(made(), key=b"\4" + bytes(64)), "another TPM"),
    ],
)
def test_whatever_is_wrong_is_named(quote: Quote, reason: str) -> None:
    with pytest.raises(AttestationError, match=reason):
        check(quote, TASK, trusted_key=POINT, pcr_digest=STATE)


@pytest.mark.parametrize("length", [0, 5, 20, 60, 90, 130])
def test_signed_bytes_that_are_cut_short_are_refused(length: int) -> None:
    body = made().attest[:length]
    r, s = decode_dss_signature(KEY.sign(body, ec.ECDSA(hashes.SHA256())))
    with pytest.raises(AttestationError):
        check(Quote(attest=body, r=r, s=s, key=POINT), TASK, trusted_key=POINT, pcr_digest=STATE)


def test_bytes_that_are_no_quote_are_refused() -> None:
    for raw in (b"", b"nonsense", msgspec.msgpack.encode([b"1", b"2"])):
        with pytest.raises(AttestationError):
            decode(raw)


@pytest.fixture
def tcti(tmp_path: Path) -> Iterator[str]:
    with software_tpm(tmp_path) as found:
        yield found


def test_a_software_tpm_quotes_for_the_task_with_one_key(tcti: str) -> None:
    """A fresh TPM's registers 0 to 7 and 10 are zero: SHA-256 of nine times 32 zero bytes."""
    fresh = hashlib.sha256(bytes(32 * len(PCRS))).digest()
    first = attestation.quote(TASK, tcti=tcti)
    second = attestation.quote(TaskId(b"u" * 32), tcti=tcti)
    assert first.key == second.key
    check(first, TASK, trusted_key=first.key, pcr_digest=fresh)
    with pytest.raises(AttestationError, match="another task"):
        check(second, TASK, trusted_key=first.key, pcr_digest=fresh)
    with pytest.raises(AttestationError, match="state is"):
        check(first, TASK, trusted_key=first.key, pcr_digest=STATE)


def test_a_missing_tpm_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tpm2_pytss", reason="the extra tpm is not installed")
    with pytest.raises(AttestationError, match="does not answer"):
        attestation.quote(TASK, tcti=f"device:{tmp_path / 'none'}")
