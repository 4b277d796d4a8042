"""Files that hold a secret: versioned, protected, whole or not there, readable by their owner only.

Layout: magic; kind, version and protection, a byte each; and what the protection makes of the body.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from penrose_ray.crypto.wrapping import Passphrase, Plain
from penrose_ray.durable import place, replace
from penrose_ray.errors import ConfigError, KeyFormatError, KeyMissingError, KeyPermissionError, naming

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penrose_ray.crypto.wrapping import Wrapping

VERSION: Final = 1
DESIGN_KEYS: Final = 1
KEY_SHARE: Final = 2
SPOOL_KEY: Final = 3
ISSUER_KEYS: Final = 4
LEDGER_KEY: Final = 5
KEY_SERVER: Final = 6
SERVICE_KEY: Final = 7
"""Kinds of secret."""

_TOKEN: Final = re.compile(r"[\w.~+/-]{16,}=*", re.ASCII)
_MAGIC: Final = b"penrose secret\n"
_HEADER_BYTES: Final = len(_MAGIC) + 3
_NAMES: Final = {
    DESIGN_KEYS: "the keys of a design server",
    KEY_SHARE: "a key share",
    SPOOL_KEY: "the key of a spool",
    ISSUER_KEYS: "the keys of a token issuer",
    LEDGER_KEY: "the signing key of a ledger",
    KEY_SERVER: "the keys of a key server",
    SERVICE_KEY: "the key of an aggregation service",
}
_MAKERS: Final = {
    DESIGN_KEYS: "penrose keys new",
    ISSUER_KEYS: "penrose issuer new",
    KEY_SERVER: "penrose keyserver new",
}
RESTORE: Final = "Restore it from its backup."


def write_secret(
    path: Path | str, kind: int, body: bytes, *, passphrase: bytes | None, token: Wrapping | None
) -> None:
    """Write a new file, readable by its owner only from the first byte on.

    `token` takes the place of a passphrase; with neither, the file's mode is all its protection.

    Raises:
        ConfigError: the file exists; secrets are never overwritten.
    """
    path = Path(path)
    try:
        place(path, _protected(kind, body, passphrase, token))
    except FileExistsError as error:
        raise ConfigError(
            f"{path} exists, and a file with secrets is never overwritten.",
            remedy="Give another path, or move the old file away.",
        ) from error


def replace_secret(
    path: Path | str, kind: int, body: bytes, *, passphrase: bytes | None, token: Wrapping | None
) -> None:
    """Put a secret in the place of one that must be forgotten; a crash leaves one or the other."""
    replace(Path(path), _protected(kind, body, passphrase, token))


def read_secret(path: Path | str, kind: int, *, passphrase: bytes | None, token: Wrapping | None) -> bytes:
    """The body of a file of that kind.

    Raises:
        KeyMissingError: there is no such file.
        KeyPermissionError: others than its owner can read or write it.
        KeyFormatError: damaged, of another kind or version, or it does not open with what was given.
    """
    raw = _read_private(Path(path), remedy=_absent(path, kind))
    if len(raw) < _HEADER_BYTES or not raw.startswith(_MAGIC):
        raise KeyFormatError(f"{path} is not a file of penrose-ray's secrets, or damaged.", remedy=RESTORE)
    found, version, code = raw[len(_MAGIC) : _HEADER_BYTES]
    if version != VERSION:
        raise KeyFormatError(
            f"{path} is of version {version}; this program reads version {VERSION}.",
            remedy="Use the version of penrose-ray that wrote it.",
        )
    if found != kind:
        raise KeyFormatError(
            f"{path} holds {_NAMES.get(found, 'something else')}, not {_NAMES[kind]}.",
            remedy="Give the right file.",
        )
    with naming(path):
        return _wrapping(path, code, passphrase, token).unwrap(raw[_HEADER_BYTES:], raw[:_HEADER_BYTES])


@contextlib.contextmanager
def body_of(path: Path | str) -> Iterator[None]:
    """Around making keys of a file's body: whatever is wrong is a KeyFormatError that names the file."""
    try:
        with naming(path):
            yield
    except (ValueError, struct.error, msgspec.MsgspecError) as error:
        raise KeyFormatError(f"{path} is damaged: {error}.", remedy=RESTORE) from error


def own_secret(path: Path, kind: int, make: Callable[[], bytes]) -> bytes:
    """The body of a file that its process makes for itself; a new one where there is none.

    Raises:
        KeyPermissionError, KeyFormatError: as `read_secret`.
    """
    try:
        return read_secret(path, kind, passphrase=None, token=None)
    except KeyMissingError:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(ConfigError):  # another process was first: its secret counts
            write_secret(path, kind, make(), passphrase=None, token=None)
        return read_secret(path, kind, passphrase=None, token=None)


def own_token(path: Path) -> str:
    """The bearer token of a text file, which another program reads as well; a new one where there is none.

    Raises:
        KeyPermissionError: others than its owner can read or write it.
        KeyFormatError: it is no token (RFC 6750) of 16 characters or more.
    """
    with contextlib.suppress(FileExistsError):
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            place(path, f"{secrets.token_urlsafe(32)}\n".encode())
    text = _read_private(path).strip().decode(errors="replace")
    if not _TOKEN.fullmatch(text):
        raise KeyFormatError(
            f"{path} holds no token.", remedy="Write one: openssl rand -hex 32, or remove the file."
        )
    return text


def _wrapping(path: Path | str, code: int, passphrase: bytes | None, token: Wrapping | None) -> Wrapping:
    if code == Plain.code:
        return Plain()
    if code == Passphrase.code and passphrase is not None:
        return Passphrase(passphrase)
    if token is not None and code == token.code:
        return token
    need, option = (
        ("a passphrase", "passphrase_variable (--passphrase-variable)")
        if code == Passphrase.code
        else ("the token that wrapped it", "hsm_token (--hsm)")
    )
    raise KeyFormatError(f"{path} opens only with {need}.", remedy=f"Give {need}: {option}.")


def _protected(kind: int, body: bytes, passphrase: bytes | None, token: Wrapping | None) -> bytes:
    wrapping = token or (Plain() if passphrase is None else Passphrase(passphrase))
    header = _MAGIC + bytes([kind, VERSION, wrapping.code])
    return header + wrapping.wrap(body, header)


def _absent(path: Path | str, kind: int) -> str:
    if maker := _MAKERS.get(kind):
        return f"Make new keys with: {maker} {shlex.quote(str(path))}"
    return f"Give the right path of {_NAMES[kind]}, or restore it from its backup."


def _read_private(path: Path, *, remedy: str = RESTORE) -> bytes:
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise KeyPermissionError(
                    f"{path} has mode {mode:04o}: others than its owner can reach this secret.",
                    remedy=f"Run: chmod 600 {shlex.quote(str(path))}",
                )
            return file.read()
    except FileNotFoundError as error:
        raise KeyMissingError(f"There is no file {path}.", remedy=remedy) from error
