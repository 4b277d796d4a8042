"""The way to a party (issuer, key server, gatekeeper, release desk): TLS 1.3, or Tor to its onion address.

Plain HTTP is for one machine: who listens on a network between two would read a client's credential.
"""

from __future__ import annotations

import http.client
import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penrose_ray.errors import ConfigError, TransportError
from penrose_ray.settings import LinkSettings
from penrose_ray.transport.http import PlainDial, address_of, exchange
from penrose_ray.transport.route import host_and_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.transport.http import Answer, Dial

_TIMEOUT_S = 60.0
_MOST_BYTES = 1 << 23


class Link:
    """Requests to one party, each over a connection of its own.

    Args:
        party: who it is, for messages.
        url: `https://HOST:PORT`, `http://ADDRESS.onion`, or `http://HOST:PORT` on this machine.
        settings: whom to believe, and what is allowed.
        timeout_s: how long a step of a request may take.
        most_bytes: so much of an answer is read.

    Raises:
        ConfigError: no such address, plain HTTP to another machine, or an onion address without a tor.
    """

    def __init__(
        self,
        party: str,
        url: str,
        settings: LinkSettings | None = None,
        *,
        timeout_s: float = _TIMEOUT_S,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self.party, self._timeout_s, self._most_bytes = party, timeout_s, most_bytes
        self._dial = _dial(party, url, settings or LinkSettings())
        self._address = address_of(url, self._dial.scheme, party=party)

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Its answer, whatever its status.

        Raises:
            TlsError: it does not prove who it is.
            TransportError: it cannot be reached.
        """
        try:
            return exchange(
                self._dial,
                self._address,
                method,
                path,
                body,
                headers=headers,
                timeout_s=self._timeout_s,
                most_bytes=self._most_bytes,
            )
        except (OSError, http.client.HTTPException) as error:
            raise TransportError(
                f"The {self.party} is not there: {error}.", remedy="Ask again later."
            ) from error


def is_loopback(host: str) -> bool:
    """Whether only this machine can be meant; names are not resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _dial(party: str, url: str, settings: LinkSettings) -> Dial:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host.endswith(".onion"):
        return _over_tor(party, settings)
    if parts.scheme == "https":
        from penrose_ray.transport.tls import AuthorityDial  # noqa: PLC0415 - certificates take 3 MB

        return AuthorityDial(settings.authorities)
    if parts.scheme == "http" and host and not is_loopback(host) and not settings.allow_plain_http:
        raise ConfigError(
            f"Plain http to the {party} at {host}: anyone on the way could read and alter what is said.",
            remedy="Write https:// and give the server a certificate; where a VPN or tunnel protects "
            "the way, set allow_plain_http (--allow-plain-http).",
        )
    return PlainDial()


def _over_tor(party: str, settings: LinkSettings) -> Dial:
    if not settings.socks:
        raise ConfigError(
            f"The {party} has an onion address, which is reached over tor alone.",
            remedy="Name a running tor: socks (--socks), such as 127.0.0.1:9050.",
        )
    from penrose_ray.transport.tor.socks import SocksDial, SocksPort  # noqa: PLC0415 - as above

    return SocksDial(SocksPort(host_and_port(settings.socks)))
