"""Refusals over HTTP as RFC 9457 has them, each with its remedy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping

RETRY_AFTER_S = 1
SEND_AGAIN = (429, 503)
"""Statuses that say when to come back."""
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
}


def problem(status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """An `application/problem+json` body; 429 and 503 say when to come back."""
    content = {
        "type": f"urn:penrose:error:{code}",
        "title": code,
        "status": status,
        "detail": detail,
        "remedy": _REMEDIES.get(code, "See docs/exit-codes.md."),
    }
    pause = {"Retry-After": str(RETRY_AFTER_S)} if status in SEND_AGAIN else {}
    return web.json_response(
        content, status=status, content_type="application/problem+json", headers={**pause, **(headers or {})}
    )
