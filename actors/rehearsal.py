"""What a dry run has in the place of issuer and key server: stand-ins of the right size; nobody is asked."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING

from penrose_ray.actors.client import Enrolled
from penrose_ray.errors import KeyFormatError, TokenError
from penrose_ray.release.blind_rsa import LEAST_BITS
from penrose_ray.release.tokens import VERSION, Token, key_ring
from penrose_ray.snippet.identity import NAME_KEY_BYTES, PLAIN, Keyed, NameKeyFile

if TYPE_CHECKING:
    from penrose_ray.settings import EnrolmentSettings
    from penrose_ray.snippet.identity import Identity
    from penrose_ray.task import Task


class MadeUpTokens:
    """As many tokens a day as the task gives, each as long as a real one; no issuer signed them."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._taken = 0
        self._day = -1

    def top_up(self, *, early: bool = False) -> None:
        """Nobody is asked."""

    def left(self, day: int) -> int:
        """Tokens of a day, in which no more can be taken once a later one has begun."""
        if day > self._day:
            self._day, self._taken = day, 0
        return self._task.tokens_per_day - self._taken

    def take(self, day: int) -> bytes:
        """Random bytes in the shape of a token."""
        self._taken += 1
        nonce, signature = secrets.token_bytes(32), secrets.token_bytes(self._signature_bytes(day))
        return Token(VERSION, day, nonce, signature).encode()

    def _signature_bytes(self, day: int) -> int:
        """Of the day's key; in a task that no issuer has signed for, of the least key."""
        try:
            return key_ring(self._task.issuer_keys).key(day).size_bytes
        except (KeyFormatError, TokenError):
            return LEAST_BITS // 8


class _MadeUpKey:
    """A name key that nobody else has."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(NAME_KEY_BYTES)
        self.key_hash = hashlib.sha256(self._key).digest()

    def name_key(self) -> bytes:
        """32 random bytes."""
        return self._key


def rehearsal(task: Task, enrolment: EnrolmentSettings) -> Enrolled:
    """Tokens and identity that need no party; raises like `NameKeyFile.name_key`.

    A name key that lies in a file is used. Otherwise signatures of a task that hides kernel names are made
    under a key of their own: they look like real ones, and would fall into no class.
    """
    return Enrolled(MadeUpTokens(task) if task.tokens_per_day else None, _identity(task, enrolment))


def _identity(task: Task, enrolment: EnrolmentSettings) -> Identity:
    if task.identity == "plain":
        return PLAIN
    if task.identity == "keyed" and enrolment.name_key_file is not None:
        return Keyed(NameKeyFile(enrolment.name_key_file), task.identity_key)
    made_up = _MadeUpKey()
    return Keyed(made_up, made_up.key_hash)
