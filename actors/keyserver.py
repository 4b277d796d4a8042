"""The key server's HTTP face; run it apart from the aggregation service, by another party."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from penrose_ray.actors.problems import problem, refusal, stranger
from penrose_ray.actors.serving import credential_of, health
from penrose_ray.errors import ClockError, QuotaError, TransportError, WireError
from penrose_ray.snippet.oprf import MOST_POINTS, POINT_BYTES

if TYPE_CHECKING:
    from penrose_ray.release.enrolment import Enrolment
    from penrose_ray.snippet.key_server import LocalKeyServer

_MOST_BYTES = MOST_POINTS * (POINT_BYTES + 4)


def application(server: LocalKeyServer, clients: Enrolment) -> web.Application:
    """Routes; a client's credential stands in the Authorization header.

    GET /epoch answers with the present epoch's signed key. POST /epochs/{epoch}/points takes a MessagePack
    list of blinded points and answers with their evaluations and one proof, as voprf serializes them.
    """
    app = web.Application(client_max_size=_MOST_BYTES)

    async def epoch(_request: web.Request) -> web.Response:
        try:
            key = await asyncio.to_thread(server.current)
        except ClockError as error:
            return refusal(error)
        return web.Response(body=msgspec.msgpack.encode(key), content_type="application/octet-stream")

    async def points(request: web.Request) -> web.Response:
        credential = credential_of(request)
        if not await asyncio.to_thread(clients.enrolled, credential):
            return stranger()
        try:
            number = int(request.match_info["epoch"])
            wanted = msgspec.msgpack.decode(await request.read(), type=list[bytes])
        except (msgspec.MsgspecError, ValueError):
            return problem(400, WireError.code, "The body is a MessagePack list of blinded points.")
        try:
            answer = await asyncio.to_thread(server.evaluate, credential, number, wanted)
        except (QuotaError, WireError, TransportError, ClockError) as error:
            return refusal(error)
        return web.Response(body=answer, content_type="application/octet-stream")

    app.router.add_get("/epoch", epoch)
    app.router.add_post("/epochs/{epoch}/points", points)
    app.router.add_get("/health", health)
    return app
