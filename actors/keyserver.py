"""The key server's HTTP face; run it apart from the aggregation service, by another party."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from penrose_ray.actors.serving import binary, for_enrolled, list_in, party
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

    async def epoch(_request: web.Request) -> web.Response:
        return binary(msgspec.msgpack.encode(await asyncio.to_thread(server.current)))

    async def points(request: web.Request, credential: bytes) -> web.Response:
        number, wanted = int(request.match_info["epoch"]), await list_in(request, "points")
        return binary(await asyncio.to_thread(server.evaluate, credential, number, wanted))

    return party(
        web.get("/epoch", epoch),
        web.post(r"/epochs/{epoch:\d{1,18}}/points", for_enrolled(clients, points)),
        most_bytes=_MOST_BYTES,
    )
