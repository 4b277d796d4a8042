"""Keys that only open with a hardware token: the file's body is encrypted by an AES key that never leaves it.

Needs python-pkcs11 (extra `hsm`) and the vendor's PKCS#11 library; SoftHSM2 is one for tests.
"""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from penrose_ray.crypto.wrapping import NONCE_BYTES
from penrose_ray.errors import ConfigError, KeyFormatError, KeyMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pkcs11

_TAG_BITS = 128
_KEY_BITS = 256


class Token:
    """AES-256-GCM (NIST SP 800-38D) inside a PKCS#11 token; a `Wrapping`.

    `module` is the vendor's library, `token` and `key` are labels. The key is made when it is first used, and
    cannot be extracted.
    """

    code: ClassVar[int] = 2

    def __init__(self, module: Path | str, token: str, pin: str, *, key: str = "penrose-ray") -> None:
        self._module = str(module)
        self._token = token
        self._pin = pin
        self._key = key

    def wrap(self, secret: bytes, context: bytes) -> bytes:
        """Nonce and ciphertext."""
        from pkcs11 import GCMParams, KeyType, Mechanism, exceptions  # noqa: PLC0415 - optional

        nonce = secrets.token_bytes(NONCE_BYTES)
        parameters = GCMParams(nonce, context, _TAG_BITS)
        with self._session() as session:
            try:
                key = self._find(session)
            except exceptions.NoSuchKey:
                key = session.generate_key(KeyType.AES, _KEY_BITS, label=self._key, store=True)
            return nonce + bytes(key.encrypt(secret, mechanism=Mechanism.AES_GCM, mechanism_param=parameters))

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """The secret again."""
        from pkcs11 import GCMParams, Mechanism, exceptions  # noqa: PLC0415 - optional

        parameters = GCMParams(wrapped[:NONCE_BYTES], context, _TAG_BITS)
        with self._session() as session:
            try:
                key = self._find(session)
                body = wrapped[NONCE_BYTES:]
                return bytes(key.decrypt(body, mechanism=Mechanism.AES_GCM, mechanism_param=parameters))
            except exceptions.NoSuchKey as error:
                raise KeyMissingError(
                    f"The token {self._token!r} holds no key {self._key!r}.",
                    remedy="Plug in the token that wrapped the file.",
                ) from error
            except exceptions.PKCS11Error as error:
                raise KeyFormatError(
                    f"The token {self._token!r} does not open the key file ({type(error).__name__}).",
                    remedy="It was wrapped by another key, or is damaged: restore it from its backup.",
                ) from error

    def _find(self, session: pkcs11.Session) -> Any:  # noqa: ANN401 - its type lacks what it can do
        from pkcs11 import ObjectClass  # noqa: PLC0415 - optional

        return session.get_key(object_class=ObjectClass.SECRET_KEY, label=self._key)

    @contextmanager
    def _session(self) -> Iterator[pkcs11.Session]:
        """A session that is logged in.

        Raises:
            ConfigError: python-pkcs11 or the vendor's library is missing, or the PIN is wrong.
            KeyMissingError: no such token is plugged in.
        """
        try:
            import pkcs11  # noqa: PLC0415 - optional
        except ImportError as error:
            raise ConfigError(
                "Keys in a token need python-pkcs11.", remedy="Run: pip install 'penrose-ray[hsm]'"
            ) from error
        try:
            library = pkcs11.lib(self._module)
        except (pkcs11.exceptions.PKCS11Error, RuntimeError, OSError) as error:
            raise ConfigError(
                f"The PKCS#11 library {self._module} cannot be loaded: {error}.",
                remedy="Give the path of the token vendor's library.",
            ) from error
        try:
            session = library.get_token(token_label=self._token).open(rw=True, user_pin=self._pin)
        except pkcs11.exceptions.NoSuchToken as error:
            raise KeyMissingError(
                f"There is no token {self._token!r}.", remedy="Plug it in, or give its label."
            ) from error
        except pkcs11.exceptions.PKCS11Error as error:
            raise ConfigError(
                f"The token {self._token!r} refuses to log in ({type(error).__name__}).",
                remedy="Check the PIN; most tokens lock after a few wrong ones.",
            ) from error
        with session:
            yield session
