"""The token issuer's HTTP face; run it apart from the aggregation service, by another party."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from penrose_ray.actors.problems import problem, refusal, stranger
from penrose_ray.actors.serving import credential_of, health
from penrose_ray.errors import ClockError, QuotaError, TokenError

if TYPE_CHECKING:
    from penrose_ray.release.issuing import Issuer

_MOST_REQUESTS = 1_000
_MOST_BYTES = 1 << 20


def application(issuer: Issuer, *, name_key: bytes = b"") -> web.Application:
    """Routes; a client's credential stands in the Authorization header.

    POST /tokens takes a MessagePack list of blinded messages and answers with their signatures. GET /name-key
    answers with `name_key`, the 32 bytes under which a task in identity mode `keyed` hashes kernel names.
    """
    app = web.Application(client_max_size=_MOST_BYTES)

    async def tokens(request: web.Request) -> web.Response:
        credential = credential_of(request)
        try:
            wanted = msgspec.msgpack.decode(await request.read(), type=list[bytes])
        except msgspec.MsgspecError:
            return problem(400, TokenError.code, "The body is a MessagePack list of blinded messages.")
        if len(wanted) > _MOST_REQUESTS:
            return problem(413, "too-large", f"At most {_MOST_REQUESTS} requests at once.")
        if not await asyncio.to_thread(issuer.enrolled, credential):
            return stranger()
        try:
            answers = await asyncio.to_thread(issuer.sign, credential, wanted)
        except (QuotaError, TokenError, ClockError) as error:
            return refusal(error)
        return web.Response(body=msgspec.msgpack.encode(answers), content_type="application/octet-stream")

    async def names(request: web.Request) -> web.Response:
        if not await asyncio.to_thread(issuer.enrolled, credential_of(request)):
            return stranger()
        if not name_key:
            return problem(404, "no-name-key", "This issuer hands out no name key.")
        return web.Response(body=name_key, content_type="application/octet-stream")

    app.router.add_post("/tokens", tokens)
    app.router.add_get("/name-key", names)
    app.router.add_get("/health", health)
    return app
