"""TPM 2.0 quotes: a machine's TPM signs which software state it measured, for one task and no other.

The nonce is the task's id, so a quote cannot be taken from another task. A quote says what was measured at
boot, not what runs now; a software TPM proves nothing about hardware. Checking needs no TPM library.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from penrose_ray.errors import AttestationError, ConfigError

if TYPE_CHECKING:
    from penrose_ray.types import TaskId

PCRS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 10)
"""Firmware, boot loader and, where the kernel measures, what was run (IMA)."""
_GENERATED: Final = 0xFF544347
_QUOTE: Final = 0x8018
_SHA256: Final = 0x000B
_ASK: Final = "Ask the service's operator which key and state the machine should have; do not upload."


class Quote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a TPM signed."""

    attest: bytes
    """TPMS_ATTEST as the TPM made it (TPM 2.0 Library, part 2, section 10.12.12)."""
    r: int
    s: int
    key: bytes
    """The attestation key, an uncompressed point of P-256."""

    def encode(self) -> bytes:
        """Bytes in a ledger's head and in the gateway's answer."""
        fields = [self.attest, self.r.to_bytes(32, "big"), self.s.to_bytes(32, "big"), self.key]
        return msgspec.msgpack.encode(fields)


def decode(raw: bytes) -> Quote:
    """Read `Quote.encode()` back.

    Raises:
        AttestationError: malformed, or there is none.
    """
    try:
        attest, r, s, key = msgspec.msgpack.decode(raw, type=tuple[bytes, bytes, bytes, bytes])
    except msgspec.MsgspecError as error:
        raise AttestationError(f"This is no quote: {error}.", remedy=_ASK) from error
    return Quote(attest=attest, r=int.from_bytes(r, "big"), s=int.from_bytes(s, "big"), key=key)


def check(quote: Quote, task_id: TaskId, *, trusted_key: bytes, pcr_digest: bytes) -> None:
    """Check that the trusted TPM quoted the expected state for this task.

    Args:
        quote: what the service showed.
        task_id: the nonce that must be in it.
        trusted_key: the attestation key that the owner pinned.
        pcr_digest: SHA-256 of the expected values of `PCRS`, one after the other.

    Raises:
        AttestationError: wrong key, signature, task or state.
    """
    if quote.key != trusted_key:
        raise AttestationError("The quote is of another TPM than the pinned one.", remedy=_ASK)
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), quote.key)
        key.verify(encode_dss_signature(quote.r, quote.s), quote.attest, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError) as error:
        raise AttestationError("The quote's signature is wrong.", remedy=_ASK) from error
    nonce, selected, digest = _parsed(quote.attest)
    if nonce != task_id:
        raise AttestationError("The quote was made for another task.", remedy=_ASK)
    if selected != frozenset(PCRS):
        raise AttestationError(f"The quote is of registers {sorted(selected)}.", remedy=_ASK)
    if digest != pcr_digest:
        raise AttestationError(
            f"The machine's state is {digest.hex()[:16]}, expected {pcr_digest.hex()[:16]}.", remedy=_ASK
        )


def _parsed(attest: bytes) -> tuple[bytes, frozenset[int], bytes]:
    """Nonce, selected registers and their digest."""
    try:
        magic, kind = struct.unpack_from(">IH", attest)
        _signer, at = _sized(attest, 6)
        nonce, at = _sized(attest, at)
        at += 8 + 4 + 4 + 1 + 8  # clock, reset count, restart count, safe; firmware version
        (banks, bank, size) = struct.unpack_from(">IHB", attest, at)
        bitmap = int.from_bytes(attest[at + 7 : at + 7 + size], "little")
        digest, end = _sized(attest, at + 7 + size)
    except struct.error as error:
        raise AttestationError("The quote is cut short.", remedy=_ASK) from error
    if (magic, kind, banks, bank, end) != (_GENERATED, _QUOTE, 1, _SHA256, len(attest)):
        raise AttestationError("The TPM signed something that is no quote of SHA-256 registers.", remedy=_ASK)
    return nonce, frozenset(n for n in range(8 * size) if bitmap >> n & 1), digest


def _sized(raw: bytes, at: int) -> tuple[bytes, int]:
    """A TPM2B: two bytes of length and so many bytes."""
    (size,) = struct.unpack_from(">H", raw, at)
    if at + 2 + size > len(raw):
        raise struct.error("cut short")
    return raw[at + 2 : at + 2 + size], at + 2 + size


def quote(task_id: TaskId, *, tcti: str = "device:/dev/tpmrm0") -> Quote:
    """Let this machine's TPM quote its state for a task; the same key each time, from the owner's seed.

    Raises:
        ConfigError: the extra `tpm` is not installed.
        AttestationError: there is no TPM, or it refuses.
    """
    try:
        import tpm2_pytss as tss  # noqa: PLC0415 - an optional extra that needs the TSS libraries
    except ImportError as error:
        raise ConfigError(
            "Quotes need tpm2-pytss.", remedy="apt-get install libtss2-dev; pip install 'penrose-ray[tpm]'"
        ) from error
    try:
        with tss.ESAPI(tcti) as tpm:
            handle, public, *_ = tpm.create_primary(
                None, _template(tss), primary_handle=tss.ESYS_TR.ENDORSEMENT
            )
            selection = "sha256:" + ",".join(str(each) for each in PCRS)
            attest, signature = tpm.quote(handle, selection, task_id)
            tpm.flush_context(handle)
    except (tss.TSS2_Exception, RuntimeError) as error:
        raise AttestationError(f"The TPM at {tcti} does not answer: {error}.", remedy=_ASK) from error
    point = public.publicArea.unique.ecc
    return Quote(
        attest=bytes(attest.attestationData),
        r=int.from_bytes(bytes(signature.signature.ecdsa.signatureR), "big"),
        s=int.from_bytes(bytes(signature.signature.ecdsa.signatureS), "big"),
        key=b"\x04" + bytes(point.x).rjust(32, b"\0") + bytes(point.y).rjust(32, b"\0"),
    )


def _template(tss: object) -> object:
    """A restricted P-256 key: it signs only what the TPM itself made."""
    attributes = "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign"
    return tss.TPM2B_PUBLIC.parse(  # type: ignore[attr-defined]
        "ecc256:ecdsa-sha256:null",
        objectAttributes=tss.TPMA_OBJECT.parse(attributes),  # type: ignore[attr-defined]
    )
