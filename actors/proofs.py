"""The ledger over HTTP: anyone may read it, and ask for a report's proof of release, or for its class."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from penrose_ray.actors.problems import problem
from penrose_ray.actors.serving import party

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.release.published import Published

_ID_BYTES = 32


def application(published: Published, *, classes: bool = False) -> web.Application:
    """Routes: GET /ledger, GET /proofs/{report id}; ask over the route that the report took.

    With `classes` also GET /classes/{report id}: the class of a released report, for `penrose label`.
    """

    async def ledger(_request: web.Request) -> web.Response:
        raw = await asyncio.to_thread(published.ledger)
        return web.Response(body=raw, content_type="application/x-ndjson")

    async def answered(request: web.Request, find: Callable[[bytes], object]) -> web.Response:
        try:
            wanted = bytes.fromhex(request.match_info["report"])
        except ValueError:
            wanted = b""
        if len(wanted) != _ID_BYTES:
            return problem(400, "invalid-message", "A report id is 64 hexadecimal digits.")
        found = await asyncio.to_thread(find, wanted)
        return web.Response(body=msgspec.json.encode(found), content_type="application/json")

    async def proof(request: web.Request) -> web.Response:
        return await answered(request, published.prove)

    async def class_of(request: web.Request) -> web.Response:
        return await answered(request, published.class_of)

    told = [web.get("/classes/{report}", class_of)] if classes else []
    return party(web.get("/ledger", ledger), web.get("/proofs/{report}", proof), *told)
