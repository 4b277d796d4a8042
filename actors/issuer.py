"""The token issuer's HTTP face; run it apart from the aggregation service, by another party."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from penrose_ray.errors import ClockError, PenroseError, QuotaError, TokenError

if TYPE_CHECKING:
    from penrose_ray.release.issuing import Issuer

_MOST_REQUESTS = 1_000
_MOST_BYTES = 1 << 20
_UNKNOWN, _TOO_MANY = 403, 429


def application(issuer: Issuer) -> web.Application:
    """Routes: POST /tokens (credential in the Authorization header, MessagePack list of requests)."""
    app = web.Application(client_max_size=_MOST_BYTES)

    async def tokens(request: web.Request) -> web.Response:
        try:
            credential = bytes.fromhex(request.headers.get("Authorization", "").removeprefix("Bearer "))
            wanted = msgspec.msgpack.decode(await request.read(), type=list[bytes])
        except (msgspec.MsgspecError, ValueError):
            return _problem(400, TokenError.code, "The body is a MessagePack list of blinded messages.")
        if len(wanted) > _MOST_REQUESTS:
            return _problem(413, "too-large", f"At most {_MOST_REQUESTS} requests at once.")
        try:
            answers = await asyncio.to_thread(issuer.sign, credential, wanted)
        except (QuotaError, TokenError, ClockError) as error:
            return _problem(_status(error), error.code, error.message)
        return web.Response(body=msgspec.msgpack.encode(answers), content_type="application/octet-stream")

    async def health(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    app.router.add_post("/tokens", tokens)
    app.router.add_get("/health", health)
    return app


def _status(error: PenroseError) -> int:
    if isinstance(error, QuotaError):
        return _TOO_MANY if "a day" in error.message else _UNKNOWN
    return 503 if isinstance(error, ClockError) else 400


def _problem(status: int, code: str, detail: str) -> web.Response:
    problem = {"type": f"urn:penrose:error:{code}", "title": code, "status": status, "detail": detail}
    return web.Response(
        status=status, body=msgspec.json.encode(problem), content_type="application/problem+json"
    )
