"""How the secret part of a key file is protected: not at all, by a passphrase, or by a token (see hsm.py)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import ClassVar, Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from penrose_ray.errors import KeyFormatError

NONCE_BYTES: Final = 12
_SALT_BYTES: Final = 16
_SCRYPT_LOG2_N: Final = 17
"""128 MiB and a third of a second a guess (RFC 7914 with r = 8, p = 1)."""


class Wrapping(Protocol):
    """Protects a secret; `context` is authenticated with it."""

    code: ClassVar[int]
    """The byte that names this protection in a key file."""

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """The protected form."""
        ...

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """The secret again; KeyFormatError when it is damaged or this protection does not open it."""
        ...


class Plain:
    """No secrecy beyond the file's mode; a digest finds damage."""

    code: ClassVar[int] = 0

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """The secret and its digest."""
        return secret + hashlib.sha256(context + secret).digest()

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """The secret again."""
        secret, digest = wrapped[:-32], wrapped[-32:]
        if not hmac.compare_digest(hashlib.sha256(context + secret).digest(), digest):
            raise KeyFormatError("The key file is damaged.", remedy="Restore it from its backup.")
        return secret


class Passphrase:
    """AES-256-GCM under a key that scrypt derives from a passphrase."""

    code: ClassVar[int] = 1

    def __init__(self, passphrase: bytes) -> None:
        self._passphrase = passphrase

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Salt, nonce and ciphertext."""
        salt, nonce = secrets.token_bytes(_SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
        return salt + nonce + self._cipher(salt).encrypt(nonce, secret, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """The secret again."""
        salt, rest = wrapped[:_SALT_BYTES], wrapped[_SALT_BYTES:]
        try:
            return self._cipher(salt).decrypt(rest[:NONCE_BYTES], rest[NONCE_BYTES:], context)
        except (InvalidTag, ValueError) as error:
            raise KeyFormatError(
                "The key file does not open: wrong passphrase, or damaged.",
                remedy="Try the passphrase again, or restore the file from its backup.",
            ) from error

    def _cipher(self, salt: bytes) -> AESGCM:
        kdf = Scrypt(salt=salt, length=32, n=1 << _SCRYPT_LOG2_N, r=8, p=1)
        return AESGCM(kdf.derive(self._passphrase))
