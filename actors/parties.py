"""What an enrolled client asks of the parties that know it: the token issuer and the key server."""

from __future__ import annotations

import http.client
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from penrose_ray.errors import ConfigError, KeyMissingError, QuotaError, TransportError
from penrose_ray.snippet.oprf import EpochKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.clock import Clock

_MOST_BYTES = 1 << 23
_TIMEOUT_S = 30.0
_PAUSE_S = 60.0
"""Nobody is asked so long after an answer that did not come."""
_OK, _UNKNOWN, _NONE, _TOO_MANY = 200, 403, 404, 429


class Party:
    """An HTTP service that knows this client by its credential."""

    def __init__(self, name: str, url: str, credential: bytes) -> None:
        """ConfigError unless `url` is http://HOST:PORT; `name` is for messages."""
        self._name = name
        self._credential = credential
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError(f"{url!r} is no {name}'s address.", remedy="Write http://HOST:PORT.")
        self._host, self._port = parts.hostname, parts.port or 80

    def ask(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The body of its answer.

        Raises:
            TransportError: it cannot be reached, or answers something else.
            QuotaError: it does not know the client, or has given it what it may have.
            KeyMissingError: it does not have what was asked for.
        """
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        try:
            headers = {"Authorization": f"Bearer {self._credential.hex()}"}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = response.read(_MOST_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(
                f"The {self._name} is not there: {error}.", remedy="It is asked again."
            ) from error
        finally:
            connection.close()
        if response.status in (_UNKNOWN, _TOO_MANY):
            raise QuotaError(
                f"The {self._name} refuses: {answer!r}.", remedy="Enrol, or wait for the next day."
            )
        if response.status == _NONE:
            raise KeyMissingError(f"The {self._name} has no such key.", remedy="Ask its operator.")
        if response.status != _OK:
            raise TransportError(f"The {self._name} answered {response.status}.", remedy="It is asked again.")
        return answer


class IssuedNameKey:
    """The name key from the token issuer."""

    def __init__(self, issuer: Party) -> None:
        self._issuer = issuer

    def name_key(self) -> bytes:
        """Ask for it; raises like `Party.ask`."""
        return self._issuer.ask("GET", "/name-key")


class HttpKeyServer:
    """The key server over HTTP: its key is asked for once an epoch, and it is left alone after a failure."""

    def __init__(self, url: str, credential: bytes, clock: Clock) -> None:
        self._party = Party("key server", url, credential)
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
        except TransportError:
            self._not_before_s = self._clock.now_s() + _PAUSE_S
            raise
