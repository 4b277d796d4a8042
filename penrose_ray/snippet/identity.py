"""Identity modes: who can tell which program a signature belongs to.

`plain`: whoever can run the program. `keyed`: whoever holds the fleet's name key. `oprf`: whoever may ask the
key server (see `oprf.py`). The mode is part of the task; docs/threats.md says what each one stops.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import shlex
from typing import TYPE_CHECKING, Protocol

from penrose_ray.durable import place
from penrose_ray.errors import ConfigError, KeyFormatError, KeyMissingError, KeyPermissionError, WrongKeyError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.snippet.minhash import Signature

NAME_KEY_BYTES = 32
_OTHERS = 0o077


class Identity(Protocol):
    """What a client does to signatures before anybody sees them."""

    @property
    def name_key(self) -> bytes:
        """Key of the name hashes; empty for none."""
        ...

    def shown(self, signature: Signature) -> Signature:
        """The signature that leaves the snippet stage."""
        ...


class _Plain:
    """Signatures as they are."""

    name_key = b""

    def shown(self, signature: Signature) -> Signature:
        """The signature itself."""
        return signature


PLAIN: Identity = _Plain()


class NameKeySource(Protocol):
    """Where an enrolled client gets the name key of a task."""

    def name_key(self) -> bytes:
        """32 secret bytes."""
        ...


class NameKeyFile:
    """A name key that the token issuer's operator hands out as a file of 64 hexadecimal digits."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def name_key(self) -> bytes:
        """Read the file.

        Raises:
            KeyMissingError: there is none.
            KeyPermissionError: others can read it.
            KeyFormatError: it does not hold 64 hexadecimal digits.
        """
        try:
            if self._path.stat().st_mode & _OTHERS:
                raise KeyPermissionError(
                    f"Others can read the name key {self._path}.",
                    remedy=f"Run: chmod 600 {shlex.quote(str(self._path))}",
                )
            key = bytes.fromhex(self._path.read_text(encoding="ascii"))
        except FileNotFoundError as error:
            raise KeyMissingError(
                f"There is no name key {self._path}.", remedy="Get it from the token issuer."
            ) from error
        except ValueError as error:
            raise _malformed(f"{self._path} is no name key: {error}.") from error
        if len(key) != NAME_KEY_BYTES:
            raise _malformed(f"{self._path} holds {len(key)} bytes, a name key has {NAME_KEY_BYTES}.")
        return key


def write_name_key(path: Path) -> bytes:
    """Make a name key and write it, readable by its owner only; returns it.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    key = secrets.token_bytes(NAME_KEY_BYTES)
    try:
        place(path, f"{key.hex()}\n".encode())
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error}.", remedy="Give another path.") from error
    return key


class Keyed:
    """Name hashes under a key that enrolled clients share and the services do not have."""

    def __init__(self, source: NameKeySource, key_hash: bytes) -> None:
        """Fetch the key; WrongKeyError unless its SHA-256 is the task's `key_hash`."""
        key = source.name_key()
        if not hmac.compare_digest(hashlib.sha256(key).digest(), key_hash):
            raise WrongKeyError(
                f"The name key is not the task's, whose SHA-256 is {key_hash.hex()}.",
                remedy="Get the key of this task from the token issuer.",
            )
        self._key = key

    @property
    def name_key(self) -> bytes:
        """The key."""
        return self._key

    def shown(self, signature: Signature) -> Signature:
        """The signature itself: its values depend on the key already."""
        return signature

    def __repr__(self) -> str:
        return "Keyed(32 secret bytes)"


def _malformed(message: str) -> KeyFormatError:
    return KeyFormatError(message, remedy="Get it again from the token issuer.")
