"""The design server's key file: Paillier factors and Ed25519 seed, versioned, protected, mode 0600.

Layout: magic, version (1 byte), protection (1 byte), then what the protection makes of the secret body.
"""

from __future__ import annotations

import os
import secrets
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penrose_ray.crypto.private_key import PrivateKey
from penrose_ray.crypto.wrapping import Passphrase, Plain
from penrose_ray.errors import ConfigError, KeyFormatError, KeyMissingError, KeyPermissionError

if TYPE_CHECKING:
    from penrose_ray.crypto.wrapping import Wrapping

VERSION: Final = 1
_MAGIC: Final = b"penrose keys\n"
_HEADER_BYTES: Final = len(_MAGIC) + 2
_SEED_BYTES: Final = 32
_RESTORE: Final = "Restore it from its backup."


@dataclass(frozen=True)
class DesignKeys:
    """All secrets of a design server."""

    paillier: PrivateKey
    signing: Ed25519PrivateKey

    @classmethod
    def generate(cls) -> DesignKeys:
        """New keys of the default size."""
        return cls(PrivateKey.generate(), Ed25519PrivateKey.generate())


def write_keys(
    path: Path | str, keys: DesignKeys, *, passphrase: bytes | None, token: Wrapping | None = None
) -> None:
    """Write a new key file, whole or not at all, readable by its owner only from the first byte on.

    `token` (see hsm.py) takes the place of a passphrase; with neither, the file's mode is all its protection.

    Raises:
        ConfigError: the file exists; keys are never overwritten.
    """
    wrapping = token or (Plain() if passphrase is None else Passphrase(passphrase))
    header = _MAGIC + bytes([VERSION, wrapping.code])
    _write_new(Path(path), header + wrapping.wrap(_body(keys), header))


def read_keys(
    path: Path | str, *, passphrase: bytes | None = None, token: Wrapping | None = None
) -> DesignKeys:
    """Read a key file.

    Raises:
        KeyMissingError: there is none.
        KeyPermissionError: others than its owner can read or write it.
        KeyFormatError: damaged, of another version, or it does not open with what was given.
    """
    raw = _read_private(Path(path))
    if len(raw) < _HEADER_BYTES or not raw.startswith(_MAGIC):
        raise KeyFormatError(f"{path} is not a key file, or damaged.", remedy=_RESTORE)
    version, code = raw[len(_MAGIC)], raw[len(_MAGIC) + 1]
    if version != VERSION:
        raise KeyFormatError(
            f"{path} is a key file of version {version}; this program reads version {VERSION}.",
            remedy="Use the version of penrose-ray that wrote it.",
        )
    wrapping = _wrapping(path, code, passphrase, token)
    return _keys(wrapping.unwrap(raw[_HEADER_BYTES:], raw[:_HEADER_BYTES]))


def _wrapping(path: Path | str, code: int, passphrase: bytes | None, token: Wrapping | None) -> Wrapping:
    if code == Plain.code:
        return Plain()
    if code == Passphrase.code and passphrase is not None:
        return Passphrase(passphrase)
    if token is not None and code == token.code:
        return token
    need = "a passphrase" if code == Passphrase.code else "the token that wrapped it"
    raise KeyFormatError(f"{path} opens only with {need}.", remedy=f"Give {need}.")


def _body(keys: DesignKeys) -> bytes:
    p, q = keys.paillier.factors()
    width = (p.bit_length() + 7) // 8
    factors = p.to_bytes(width, "big") + q.to_bytes(width, "big")
    return struct.pack(">H", width) + factors + keys.signing.private_bytes_raw()


def _keys(body: bytes) -> DesignKeys:
    width = struct.unpack_from(">H", body)[0]
    if len(body) != 2 + 2 * width + _SEED_BYTES:
        raise KeyFormatError("The key file holds a body of another length.", remedy=_RESTORE)
    p, q = (int.from_bytes(body[at : at + width], "big") for at in (2, 2 + width))
    return DesignKeys(PrivateKey(p, q), Ed25519PrivateKey.from_private_bytes(body[-_SEED_BYTES:]))


def _write_new(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, fails where the name is taken
    except FileExistsError as error:
        raise ConfigError(
            f"{path} exists, and a key file is never overwritten.",
            remedy="Give another path, or move the old file away.",
        ) from error
    finally:
        temporary.unlink()
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_private(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise KeyPermissionError(
                    f"{path} has mode {mode:04o}: others than its owner can reach this private key.",
                    remedy=f"Run: chmod 600 {path}",
                )
            return file.read()
    except FileNotFoundError as error:
        raise KeyMissingError(
            f"There is no key file {path}.", remedy=f"Make one with: penrose keys new {path}"
        ) from error
