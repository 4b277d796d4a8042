"""The token issuer's HTTP face; run it apart from the aggregation service, by another party."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from penrose_ray.actors.problems import problem
from penrose_ray.actors.serving import binary, for_enrolled, list_in, party

if TYPE_CHECKING:
    from penrose_ray.release.issuing import Issuer

_MOST_REQUESTS = 1_000
_MOST_BYTES = 1 << 20


def application(issuer: Issuer, *, name_key: bytes = b"") -> web.Application:
    """Routes; a client's credential stands in the Authorization header.

    POST /tokens takes a MessagePack list of blinded messages and answers with their signatures. GET /name-key
    answers with `name_key`, the 32 bytes under which a task in identity mode `keyed` hashes kernel names.
    """

    async def tokens(request: web.Request, credential: bytes) -> web.Response:
        wanted = await list_in(request, "messages")
        if len(wanted) > _MOST_REQUESTS:
            return problem(413, "too-large", f"At most {_MOST_REQUESTS} requests at once.")
        return binary(msgspec.msgpack.encode(await asyncio.to_thread(issuer.sign, credential, wanted)))

    async def names(_request: web.Request, _credential: bytes) -> web.Response:
        if not name_key:
            return problem(404, "no-name-key", "This issuer hands out no name key.")
        return binary(name_key)

    return party(
        web.post("/tokens", for_enrolled(issuer, tokens)),
        web.get("/name-key", for_enrolled(issuer, names)),
        most_bytes=_MOST_BYTES,
    )
