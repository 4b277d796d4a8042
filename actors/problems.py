"""Refusals over HTTP as RFC 9457 has them, each with its remedy."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from aiohttp import web

from penrose_ray.errors import (
    ClockError,
    GatekeeperError,
    LedgerError,
    PenroseError,
    QuotaError,
    TokenError,
    TransportError,
    WireError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aiohttp.typedefs import Handler, Middleware

_LOG = logging.getLogger("penrose_ray.http")
UNFORESEEN = "Something that was not foreseen."
"""The detail of an error whose message is no business of the asker."""
RETRY_AFTER_S = 1
SEND_AGAIN = (429, 503)
"""Statuses that say when to come back."""
_STATUSES = (
    (QuotaError, 429),
    (ClockError, 503),
    (TransportError, 410),
    (GatekeeperError, 409),
    (LedgerError, 404),
    (TokenError, 400),
    (WireError, 400),
)
_REMEDIES = {
    "wrong-task": "Fetch the task that this service offers and seal reports for it.",
    "too-large": "Send fewer reports a request.",
    "too-slow": "Send the same bytes again, faster.",
    "invalid-message": "Send reports made by the same version of penrose-ray.",
    "sealed-tags": "Fetch the task that this service offers and seal reports for its key.",
    "wrong-scheme": "Compute signatures with the scheme that the task names.",
    "counter-set": "Seal reports for the task that this service offers.",
    "capacity": "Send the report again after the batch is released.",
    "wrong-owner": "Send the same bytes again: its bucket has just moved.",
    "ciphertext": "Seal the report again with the task's public key.",
    "token": "Ask the issuer for the day's tokens.",
    "too-early": "Set the clock of the client's machine.",
    "too-late": "Nothing: a report that old is lost.",
    "busy": "Send the same bytes again after the pause.",
    "quota": "Enrol with its operator, or wait for the next day.",
    "no-name-key": "Ask its operator for the name key, a file.",
    "clock": "Ask again when the clock of that machine is set.",
    "transport": "Ask for the present epoch's key.",
    "gatekeeper": "Send the request that the release desk made.",
    "metrics-token": "Send Authorization: Bearer with what is in the operator's service.metrics_token_file.",
    "ledger": "Ask again after the report's batch is released.",
}


def problem(status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An `application/problem+json` body; 429 and 503, but for a spent quota, say when to come back."""
    content = {
        "type": f"urn:penrose:error:{code}",
        "title": code,
        "status": status,
        "detail": detail,
        "remedy": _REMEDIES.get(code, "See docs/exit-codes.md."),
    }
    soon = status in SEND_AGAIN and code != QuotaError.code
    pause = {"Retry-After": str(RETRY_AFTER_S)} if soon else {}
    return web.json_response(
        content, status=status, content_type="application/problem+json", headers={**pause, **(headers or {})}
    )


def refusal(error: PenroseError) -> web.Response:
    """The answer of a party to who cannot have what it asks for; 500 for errors that are not the asker's."""
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return problem(status, error.code, error.message)
    _LOG.error("a request failed: %s", error)  # its message may hold paths and names of this machine
    return problem(500, error.code, UNFORESEEN)


def stranger() -> web.Response:
    """The answer to whoever is not enrolled."""
    return problem(403, QuotaError.code, "This client is not enrolled.")


def problems(answer: Callable[[PenroseError], web.Response]) -> Middleware:
    """A middleware: whatever a handler raises is a problem, PenroseErrors as `answer` has them."""

    @web.middleware
    async def caught(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return problem(405, "http", f"The method here is {allowed}.", {"Allow": allowed})
        except web.HTTPException as error:
            return problem(error.status, "http", error.reason)
        except PenroseError as error:
            return answer(error)
        except Exception:  # noqa: BLE001 - its traceback goes to the log, the client gets a problem
            _LOG.exception("a request failed")
            return problem(500, "internal", UNFORESEEN)

    return caught
