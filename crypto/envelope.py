"""Sealing to one reader by HPKE (RFC 9180): whoever only forwards the text cannot read it.

Base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM, as `cryptography` has it. What must
stay with the text is bound in as `info`: under another one it does not open.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final, NoReturn, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from penrose_ray.crypto.secretfile import SERVICE_KEY, body_of, own_secret, read_secret
from penrose_ray.errors import EnvelopeError, KeyFormatError

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES: Final = 32
OVERHEAD_BYTES: Final = KEY_BYTES + 16
"""Encapsulated key and tag."""
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def seal(plain: bytes, reader: bytes, info: bytes) -> bytes:
    """Only the holder of the reader's key can open the result, `OVERHEAD_BYTES` longer than the text.

    Raises:
        EnvelopeError: `reader` is no X25519 public key of 32 bytes, or one that gives no secret.
    """
    try:
        return _SUITE.encrypt(plain, X25519PublicKey.from_public_bytes(reader), info)
    except ValueError as error:
        raise EnvelopeError(f"The service's key is none: {error}.", remedy="Fetch the task again.") from error


class ServiceKey:
    """The private key of an aggregation service.

    Raises:
        KeyFormatError: `private` has not 32 bytes.
    """

    def __init__(self, private: bytes) -> None:
        try:
            self._key = X25519PrivateKey.from_private_bytes(private)
        except ValueError as error:
            raise KeyFormatError(f"This is no service key: {error}.", remedy="Make a new one.") from error

    @classmethod
    def own(cls, path: Path) -> Self:
        """The key in that file, made when there is none; raises like `read`."""
        with body_of(path):
            return cls(own_secret(path, SERVICE_KEY, lambda: secrets.token_bytes(KEY_BYTES)))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The key in that file; raises like `read_secret`."""
        with body_of(path):
            return cls(read_secret(path, SERVICE_KEY, passphrase=None, token=None))

    @property
    def public(self) -> bytes:
        """What a task names and clients seal to, 32 bytes."""
        return self._key.public_key().public_bytes_raw()

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """What was sealed.

        Raises:
            EnvelopeError: damaged, sealed to another key, or under another `info`.
        """
        try:
            return _SUITE.decrypt(sealed, self._key, info)
        except (InvalidTag, ValueError) as error:
            raise EnvelopeError(
                "The report's sealed tags do not open with this service's key.",
                remedy="Fetch the task that this service offers and seal the report for its key.",
            ) from error

    def __reduce__(self) -> NoReturn:
        """Refuse: the key leaves its process through its file only."""
        raise TypeError("a ServiceKey cannot be pickled")
