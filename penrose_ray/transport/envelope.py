"""Signature and class tags sealed to the aggregation service: whoever only forwards reports cannot read them.

HPKE in base mode (RFC 9180) with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM, as `cryptography`
has it. Task and report id are bound in as `info`, so a sealed text cannot be moved to another report.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from penrose_ray.errors import WireError

if TYPE_CHECKING:
    from penrose_ray.types import ReportId, TaskId

OVERHEAD_BYTES: Final = 32 + 16
"""Encapsulated key and tag."""
_LABEL: Final = b"penrose tags\x01"
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_REMEDY: Final = "Seal the report again for the key that the service publishes."


class Tags(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What tells which class a report belongs to."""

    gpu_model: str
    scheme: str
    signature: bytes
    counter_set: int


def seal_tags(tags: Tags, service_key: bytes, task_id: TaskId, report_id: ReportId) -> bytes:
    """Only the holder of the service's key can read the result; 48 bytes longer than the tags.

    Raises:
        WireError: `service_key` is no X25519 public key of 32 bytes.
    """
    try:
        key = X25519PublicKey.from_public_bytes(service_key)
        return _SUITE.encrypt(msgspec.msgpack.encode(tags), key, _info(task_id, report_id))
    except ValueError as error:
        raise WireError(f"The service's key is none: {error}.", remedy="Fetch the task again.") from error


def open_tags(sealed: bytes, key: X25519PrivateKey, task_id: TaskId, report_id: ReportId) -> Tags:
    """The tags of that report.

    Raises:
        WireError: damaged, for another key, or of another report.
    """
    try:
        raw = _SUITE.decrypt(sealed, key, _info(task_id, report_id))
        return msgspec.msgpack.decode(raw, type=Tags)
    except (InvalidTag, ValueError, msgspec.MsgspecError) as error:
        raise WireError("The report's sealed tags do not open.", remedy=_REMEDY) from error


def _info(task_id: TaskId, report_id: ReportId) -> bytes:
    return _LABEL + task_id + report_id
