"""The design server's keys, Paillier and Ed25519, and their file."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penrose_ray.crypto.private_key import PrivateKey
from penrose_ray.crypto.secretfile import DESIGN_KEYS, RESTORE, body_of, read_secret, write_secret
from penrose_ray.errors import KeyFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.crypto.wrapping import Wrapping

_SEED_BYTES: Final = 32


@dataclass(frozen=True)
class DesignKeys:
    """All secrets of a design server."""

    paillier: PrivateKey
    signing: Ed25519PrivateKey

    @classmethod
    def generate(cls, bits: int = 3072, *, progress: Callable[[str], None] | None = None) -> DesignKeys:
        """New keys; `progress` gets lines of text."""
        return cls(PrivateKey.generate(bits, progress=progress), Ed25519PrivateKey.generate())

    @property
    def signer(self) -> bytes:
        """The 32 bytes of the public signing key, by which clients pin this design server."""
        return self.signing.public_key().public_bytes_raw()


def write_keys(
    path: Path | str, keys: DesignKeys, *, passphrase: bytes | None, token: Wrapping | None = None
) -> None:
    """Write a new key file; see `secretfile.write_secret`. `token` (hsm.py) takes the place of a passphrase.

    Raises:
        ConfigError: the file exists; keys are never overwritten.
    """
    p, q = keys.paillier.factors()
    width = (p.bit_length() + 7) // 8
    factors = p.to_bytes(width, "big") + q.to_bytes(width, "big")
    body = struct.pack(">H", width) + factors + keys.signing.private_bytes_raw()
    write_secret(path, DESIGN_KEYS, body, passphrase=passphrase, token=token)


def read_keys(
    path: Path | str, *, passphrase: bytes | None = None, token: Wrapping | None = None
) -> DesignKeys:
    """Read a key file.

    Raises:
        KeyMissingError: there is none.
        KeyPermissionError: others than its owner can read or write it.
        KeyFormatError: damaged, of another version, or it does not open with what was given.
    """
    body = read_secret(path, DESIGN_KEYS, passphrase=passphrase, token=token)
    with body_of(path):
        width = struct.unpack_from(">H", body)[0]
        if len(body) != 2 + 2 * width + _SEED_BYTES:
            raise KeyFormatError("It holds a body of another length.", remedy=RESTORE)
        p, q = (int.from_bytes(body[at : at + width], "big") for at in (2, 2 + width))
        return DesignKeys(PrivateKey(p, q), Ed25519PrivateKey.from_private_bytes(body[-_SEED_BYTES:]))
