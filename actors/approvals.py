"""Asking a gatekeeper over HTTP to decrypt its part of a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.errors import GatekeeperError
from penrose_ray.transport.link import Link

if TYPE_CHECKING:
    from penrose_ray.settings import LinkSettings

_TIMEOUT_S = 3600.0
"""Some 60 ms a sum."""
_MOST_BYTES = 1 << 28
_OK = 200


def gatekeeper_at(url: str, settings: LinkSettings) -> Link:
    """The way to a gatekeeper; raises ConfigError like `Link`."""
    return Link("gatekeeper", url, settings, timeout_s=_TIMEOUT_S, most_bytes=_MOST_BYTES)


def ask_gatekeeper(gatekeeper: Link, request: bytes) -> bytes:
    """A gatekeeper's partial decryptions.

    Args:
        gatekeeper: the way to it.
        request: what the release desk asks with (`Published.request`).

    Raises:
        TlsError, TransportError: as `Link.ask`.
        GatekeeperError: it refuses.
    """
    answer = gatekeeper.ask("POST", "/partials", request)
    if answer.status != _OK:
        problem = answer.problem
        raise GatekeeperError(
            f"It refused: {problem.detail or answer.status}", remedy=problem.remedy or "Ask its operator."
        )
    return answer.body
