"""Tokens: a client may send so many reports a day, and nobody can tell which client spent which.

Each day has a key of its own, and the signed task names all of them: a token cannot be saved up for another
day, and an issuer cannot mark a client by giving it a key of its own.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from penrose_ray.errors import KeyFormatError, TokenError
from penrose_ray.release.blind_rsa import Blinded, VerifyKey
from penrose_ray.types import ReportId

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.types import TaskId

DAY_S: Final = 86_400
VERSION: Final = 1
_NONCE_BYTES: Final = 32
_CONTEXT: Final = b"penrose-ray token v1\x00"


class Token(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The right to send one report."""

    version: int
    day: int
    """Day of the key: days since the Unix epoch."""
    nonce: bytes
    signature: bytes

    def encode(self) -> bytes:
        """Bytes in a report; their SHA-256 is the report's id."""
        return msgspec.msgpack.encode(self)

    @property
    def report_id(self) -> ReportId:
        """Id of the report that spends it."""
        return report_id(self.encode())


def report_id(token: bytes) -> ReportId:
    """SHA-256 of a token: one look-up of the id finds replay and double spending alike."""
    return ReportId(hashlib.sha256(token).digest())


def decode(raw: bytes) -> Token:
    """Read `Token.encode()` back.

    Raises:
        TokenError: malformed, of another version, or not canonical.
    """
    try:
        token = msgspec.msgpack.decode(raw, type=Token)
    except msgspec.MsgspecError as error:
        raise TokenError(f"This is no token: {error}.", remedy="Ask the issuer for new tokens.") from error
    if token.version != VERSION or len(token.nonce) != _NONCE_BYTES or token.encode() != raw:
        raise TokenError(
            "This token is of another version, or not canonical.", remedy="Ask the issuer for new tokens."
        )
    return token


class KeyRing(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The public keys of an issuer, a key a day; part of the task."""

    first_day: int
    moduli: tuple[bytes, ...]

    def encode(self) -> bytes:
        """Value of the task's `issuer_keys`."""
        return msgspec.msgpack.encode(self)

    def key(self, day: int) -> VerifyKey:
        """The key of a day.

        Raises:
            TokenError: the ring has none for that day.
        """
        at = day - self.first_day
        if not 0 <= at < len(self.moduli):
            last = self.first_day + len(self.moduli) - 1
            raise TokenError(
                f"The task has token keys for days {self.first_day} to {last}, not for day {day}.",
                remedy="Check the clock; when the keys have run out, the design server signs a new task.",
            )
        return VerifyKey(int.from_bytes(self.moduli[at], "big"))


def key_ring(raw: bytes) -> KeyRing:
    """Read `KeyRing.encode()` back.

    Raises:
        KeyFormatError: malformed.
    """
    try:
        return msgspec.msgpack.decode(raw, type=KeyRing)
    except msgspec.MsgspecError as error:
        raise KeyFormatError(
            f"The task's token keys are malformed: {error}.", remedy="Sign a task with penrose issuer's keys."
        ) from error


def message(task_id: TaskId, nonce: bytes) -> bytes:
    """What the issuer signs without seeing it: a token is of one task."""
    return _CONTEXT + task_id + nonce


class Verifier:
    """Checks the tokens of one task; the keys of a few days are kept ready."""

    def __init__(self, task_id: TaskId, issuer_keys: bytes) -> None:
        self._task_id = task_id
        self._raw = issuer_keys
        self._ready: dict[int, VerifyKey] = {}

    @cached_property
    def _ring(self) -> KeyRing:
        return key_ring(self._raw)

    def check(self, raw: bytes, *, created_s: float) -> ReportId:
        """The id of the report that this token pays for.

        Args:
            raw: the token.
            created_s: when the report says it was made; the token is of that day.

        Raises:
            TokenError: forged, malformed, or of another day or task.
        """
        token = decode(raw)
        day = int(created_s // DAY_S)
        if token.day != day:
            raise TokenError(
                f"The token is of day {token.day}, the report of day {day}.", remedy="Use the day's tokens."
            )
        if token.day not in self._ready:
            self._ready[token.day] = self._ring.key(token.day)
        self._ready[token.day].verify(message(self._task_id, token.nonce), token.signature)
        return report_id(raw)


@dataclass(frozen=True, slots=True)
class Request:
    """A token that is being asked for; `blinded.request` goes to the issuer, the rest stays."""

    day: int
    nonce: bytes
    blinded: Blinded


class Asker:
    """The client's side of issuing, for one task and day.

    Raises:
        TokenError: the task has no key for that day.
    """

    def __init__(
        self,
        task_id: TaskId,
        issuer_keys: bytes,
        day: int,
        *,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self.day = day
        self._task_id = task_id
        self._key = key_ring(issuer_keys).key(day)
        self._random_bytes = random_bytes

    def request(self) -> Request:
        """A new token to ask for."""
        nonce = self._random_bytes(_NONCE_BYTES)
        return Request(
            self.day, nonce, self._key.blind(message(self._task_id, nonce), random_bytes=self._random_bytes)
        )

    def finish(self, request: Request, answer: bytes) -> Token:
        """The token from the issuer's answer.

        Raises:
            TokenError: the answer is not the issuer's signature.
        """
        signed = message(self._task_id, request.nonce)
        return Token(VERSION, request.day, request.nonce, self._key.finalise(signed, request.blinded, answer))
