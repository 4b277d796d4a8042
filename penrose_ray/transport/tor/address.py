"""Onion addresses, version 3 (Tor rend-spec-v3, section 6): a public key, a checksum and a version."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Final

from penrose_ray.errors import ConfigError

_KEY_BYTES: Final = 32
_CHECKSUM_BYTES: Final = 2
_VERSION: Final = b"\x03"
_SUFFIX: Final = ".onion"
_LENGTH: Final = 56


def onion_host(public_key: bytes) -> str:
    """The host name of a service with that Ed25519 key."""
    raw = public_key + _checksum(public_key) + _VERSION
    return base64.b32encode(raw).decode().lower() + _SUFFIX


def check_onion(host: str) -> str:
    """The host name, when it is an onion address.

    Raises:
        ConfigError: another kind of host, or a misspelt address.
    """
    label = host.lower().removesuffix(_SUFFIX)
    if not host.lower().endswith(_SUFFIX) or len(label) != _LENGTH:
        raise ConfigError(
            f"{host!r} is no onion address of version 3.",
            remedy="Uploads over Tor go to onion services only: write 56 characters and .onion.",
        )
    try:
        raw = base64.b32decode(label.upper())
    except binascii.Error as error:
        raise ConfigError(f"{host!r} is misspelt.", remedy="Copy the address again.") from error
    key, checksum = raw[:_KEY_BYTES], raw[_KEY_BYTES : _KEY_BYTES + _CHECKSUM_BYTES]
    if raw[-1:] != _VERSION or checksum != _checksum(key):
        raise ConfigError(f"{host!r} is misspelt: its checksum is wrong.", remedy="Copy the address again.")
    return host.lower()


def _checksum(public_key: bytes) -> bytes:
    return hashlib.sha3_256(b".onion checksum" + public_key + _VERSION).digest()[:_CHECKSUM_BYTES]
