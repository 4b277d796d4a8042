"""Asking a gatekeeper over HTTP to decrypt its part of a release."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

from penrose_ray.errors import ConfigError, GatekeeperError, TransportError

_TIMEOUT_S = 3600.0
"""Some 60 ms a sum."""
_OK = 200


def ask_gatekeeper(url: str, request: bytes) -> bytes:
    """A gatekeeper's partial decryptions.

    Args:
        url: http://HOST:PORT.
        request: what the release desk asks with (`Published.request`).

    Raises:
        ConfigError: no such address.
        TransportError: it cannot be reached.
        GatekeeperError: it refuses.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ConfigError(f"{url!r} is no gatekeeper's address.", remedy="Write http://HOST:PORT.")
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_TIMEOUT_S)
    try:
        connection.request("POST", "/partials", request)
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise TransportError(
            f"The gatekeeper {url} is not there: {error}.", remedy="Ask again later."
        ) from error
    finally:
        connection.close()
    if response.status != _OK:
        raise GatekeeperError(f"It refused: {answer.decode(errors='replace')}", remedy="See its detail.")
    return answer
