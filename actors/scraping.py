"""Who may read /metrics: whoever has the token; without one, this machine where nobody else gets in.

Where a request comes from says nothing: tor and a front proxy bring everybody's requests from 127.0.0.1.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penrose_ray.actors.problems import problem
from penrose_ray.crypto.secretfile import own_token
from penrose_ray.transport.link import is_loopback

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp import web

    from penrose_ray.settings import ServiceSettings, TransportSettings


def is_alone(service: ServiceSettings, transport: TransportSettings) -> bool:
    """Whether only programs of the gateway's machine reach the gateway, as far as the settings say."""
    return is_loopback(service.host) and transport.tor is None and transport.tls is None


@dataclass(frozen=True, slots=True)
class Scrapers:
    """Those who may read /metrics."""

    token: str = ""
    alone: bool = True
    """Without a token: whether `is_alone`, so that everybody who can ask may."""

    @classmethod
    def known(cls, token_file: Path | None, *, alone: bool) -> Scrapers:
        """Whoever has what the file holds; a file that is missing is made.

        Raises:
            KeyPermissionError, KeyFormatError: as `own_token`.
        """
        return cls(own_token(token_file) if token_file else "", alone)

    def refusal(self, request: web.Request) -> web.Response | None:
        """The answer to who may not."""
        if not self.token:
            if self.alone:
                return None
            return problem(403, "metrics-token", "Others reach this gateway, and /metrics has no token.")
        given = request.headers.get("Authorization", "").encode(errors="surrogateescape")
        if hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return None
        ask = {"WWW-Authenticate": 'Bearer realm="metrics"'}
        return problem(401, "metrics-token", "/metrics is for who has its token.", ask)
