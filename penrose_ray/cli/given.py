"""What options name: hexadecimal texts and files."""

from __future__ import annotations

from pathlib import Path

from penrose_ray.errors import ConfigError, PenroseError


def hexadecimal(option: str, text: str, *, source: str = "") -> bytes:
    """The bytes of a hexadecimal text.

    Raises:
        ConfigError: it is none; the remedy names the command that prints it.
    """
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        remedy = f"Copy it from {source}." if source else "Copy it whole."
        raise ConfigError(f"{option} {text!r} is not hexadecimal.", remedy=remedy) from error


def content_of(path: Path, kind: type[PenroseError], *, remedy: str = "Check the path.") -> bytes:
    """The bytes of a file; raises an error of that kind when it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise kind(f"{path} cannot be read: {error}.", remedy=remedy) from error
