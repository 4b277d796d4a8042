"""Refusals over HTTP as RFC 9457 has them, each with its remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from penrose_ray.errors import ClockError, GatekeeperError, LedgerError, QuotaError, TransportError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.errors import PenroseError

RETRY_AFTER_S = 1
SEND_AGAIN = (429, 503)
"""Statuses that say when to come back."""
_STATUSES = (
    (QuotaError, 429),
    (ClockError, 503),
    (TransportError, 410),
    (GatekeeperError, 409),
    (LedgerError, 404),
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
    """The answer of a party to who cannot have what it asks for; 400 for errors of no kind named here."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 400)
    return problem(status, error.code, error.message)


def stranger() -> web.Response:
    """The answer to whoever is not enrolled."""
    return problem(403, QuotaError.code, "This client is not enrolled.")
