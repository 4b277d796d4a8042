"""What an enrolled client asks of the parties that know it: the token issuer and the key server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from penrose_ray.errors import KeyMissingError, QuotaError, TransportError
from penrose_ray.snippet.oprf import EpochKey
from penrose_ray.transport.link import Link

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.clock import Clock
    from penrose_ray.settings import LinkSettings

_LOG = logging.getLogger("penrose_ray.client")
_TIMEOUT_S = 30.0
_PAUSE_S = 60.0
"""Nobody is asked so long after an answer that did not come."""
_OK, _UNKNOWN, _NONE, _TOO_MANY = 200, 403, 404, 429


class Party:
    """An HTTP service that knows this client by its credential."""

    def __init__(self, name: str, url: str, credential: bytes, settings: LinkSettings | None = None) -> None:
        """`name` is for messages; raises ConfigError like `Link`."""
        self._name, self._credential = name, credential
        self._link = Link(name, url, settings, timeout_s=_TIMEOUT_S)

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of its answer.

        Raises:
            TlsError: it does not prove who it is.
            TransportError: it cannot be reached, or answers something else.
            QuotaError: it does not know the client, or has given it what it may have.
            KeyMissingError: it does not have what was asked for.
        """
        headers = {"Authorization": f"Bearer {self._credential.hex()}"}
        answer = self._link.ask(method, path, body, headers)
        if answer.status in (_UNKNOWN, _TOO_MANY):
            raise QuotaError(
                f"The {self._name} refuses: {answer.problem.detail or answer.status}",
                remedy="Enrol, or wait for the next day.",
            )
        if answer.status == _NONE:
            raise KeyMissingError(f"The {self._name} has no such key.", remedy="Ask its operator.")
        if answer.status != _OK:
            raise TransportError(f"The {self._name} answered {answer.status}.", remedy="It is asked again.")
        return answer.body


class IssuedNameKey:
    """The name key from the token issuer."""

    def __init__(self, issuer: Party) -> None:
        self._issuer = issuer

    def name_key(self) -> bytes:
        """Ask for it; raises like `Party.ask`."""
        return self._issuer.ask("GET", "/name-key")


class HttpKeyServer:
    """The key server over HTTP: its key is asked for once an epoch, and it is left alone after a failure."""

    def __init__(self, party: Party, clock: Clock) -> None:
        self._party = party
        self._clock = clock
        self._key: EpochKey | None = None
        self._not_before_s = 0.0

    def current(self) -> EpochKey:
        """The present epoch's key, not verified; raises like `Party.ask`."""
        if self._key is None or self._clock.now_s() >= self._key.ends_s:
            raw = self._ask("GET", "/epoch")
            try:
                self._key = msgspec.msgpack.decode(raw, type=EpochKey)
            except msgspec.MsgspecError as error:
                raise TransportError(
                    f"The key server sent no key: {error}.", remedy="It is asked again."
                ) from error
        return self._key

    def evaluate(self, client: bytes, epoch: int, points: Sequence[bytes]) -> bytes:  # noqa: ARG002 - it has it
        """Evaluate blinded points; raises like `Party.ask`."""
        try:
            return self._ask("POST", f"/epochs/{epoch}/points", msgspec.msgpack.encode(points))
        except TransportError:
            self._key = None  # its epoch may be over
            raise

    def _ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        if self._clock.now_s() < self._not_before_s:
            raise TransportError("The key server did not answer a moment ago.", remedy="It is asked again.")
        try:
            return self._party.ask(method, path, body)
        except TransportError as error:
            self._not_before_s = self._clock.now_s() + _PAUSE_S
            _LOG.warning("no key server for now: %s", error)
            raise
