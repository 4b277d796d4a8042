"""What may leave the machine in a text: names salted, identities and addresses taken out."""

from __future__ import annotations

import getpass
import hashlib
import hmac
import logging
import re
import socket
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

SALT_BYTES = 32
_SALTED_HEX = 24
_SHORTEST_IDENTITY = 3
_NOBODY = frozenset({"root", "admin", "user", "ubuntu", "localhost"})
"""Names that say nothing of who or where, and are words of many a sentence."""
_RULES = (
    (re.compile(r"\b[a-z][a-z\d+.-]*://[^\s\"'<>]+", re.IGNORECASE), "<address>"),
    (re.compile(r"\b[a-z2-7]{16,56}\.onion(?::\d+)?\b", re.IGNORECASE), "<address>"),
    (re.compile(r"\b(?:GPU|MIG)-[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b"), "<device>"),
    (re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"), "<mail>"),
    (
        re.compile(r"(?<![\w:])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{1,4}(?:%\w+)?(?![\w:])", re.IGNORECASE),
        "<address>",
    ),
    (re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?![\w.])"), "<address>"),
    (re.compile(r"\b0x[0-9a-f]{4,16}\b", re.IGNORECASE), "<pointer>"),
    (re.compile(r"(?<![\w/:.)\]])(?:~|/)(?:[\w.@+-]+/)*[\w.@+-]+"), "<path>"),
    (re.compile(r"\b[A-Za-z]:\\(?:[^\\\s\"']+\\)*[^\\\s\"']*"), "<path>"),
)


def salted(name: str, salt: bytes) -> str:
    """A kernel name's pseudonym under a salt that stays on the machine: 96 bits of HMAC-SHA-256.

    Equal names stay equal, so snippets keep matching among holders of the same salt; the name cannot be
    found by hashing lists of known kernels without it.
    """
    if len(salt) < SALT_BYTES:
        raise ValueError(f"a salt has {SALT_BYTES} bytes or more, not {len(salt)}")
    return hmac.new(salt, name.encode(), hashlib.sha256).hexdigest()[:_SALTED_HEX]


class Scrubber:
    """Takes out of a text who and where: given identities, addresses, UUIDs of GPUs, pointers, paths."""

    def __init__(self, identities: Iterable[str] = ()) -> None:
        words = sorted(
            {word for word in identities if len(word) >= _SHORTEST_IDENTITY and word not in _NOBODY},
            key=len,
            reverse=True,
        )
        pattern = "|".join(re.escape(word) for word in words)
        self._identities = (
            re.compile(rf"(?<![^\W_])(?:{pattern})(?![^\W_])", re.IGNORECASE) if words else None
        )

    @classmethod
    def of_this_machine(cls) -> Self:
        """One that knows this host's names and this user's."""
        host = socket.gethostname()
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            user = ""
        return cls([host, host.partition(".")[0], user])

    def __call__(self, text: str) -> str:
        """The text without them."""
        for pattern, replacement in _RULES:
            text = pattern.sub(replacement, text)
        return self._identities.sub("<name>", text) if self._identities else text


class ScrubbingFormatter(logging.Formatter):
    """Scrubs whole log lines, those of a traceback too."""

    def __init__(self, scrubber: Scrubber) -> None:
        super().__init__("%(levelname)s %(name)s: %(message)s")
        self._scrubber = scrubber

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, without who and where."""
        return self._scrubber(super().format(record))
