"""Small HTTP services on their own: listen, say where, end on a signal."""

from __future__ import annotations

import asyncio
import enum
import errno
import signal
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from aiohttp import web

from penrose_ray.actors.problems import problems, refusal, stranger
from penrose_ray.errors import PortInUseError, WireError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from ssl import SSLContext

    from aiohttp.typedefs import Handler

    from penrose_ray.release.enrolment import Enrolment

_MOST_BYTES = 1 << 20


class Sharing(enum.Enum):
    """Who may listen at the same address; the kernel deals new connections out among them (SO_REUSEPORT).

    It lets in only processes of the same user that ask for it, and only where all who are there have asked.
    """

    NONE = enum.auto()
    """Nobody else."""
    FIRST = enum.auto()
    """Nobody does yet, which is made sure of; from then on others may join."""
    JOINING = enum.auto()
    """One that was the first, and maybe more."""


class Place(NamedTuple):
    """Where to listen; port 0 lets the kernel choose."""

    host: str
    port: int
    secured: SSLContext | None = None
    sharing: Sharing = Sharing.NONE


class _Site(web.TCPSite):
    """A place that is listened at."""

    def __init__(self, runner: web.AppRunner, place: Place) -> None:
        joins = place.sharing is Sharing.JOINING or None
        super().__init__(runner, place.host, place.port, ssl_context=place.secured, reuse_port=joins)
        self._is_first = place.sharing is Sharing.FIRST

    async def start(self) -> None:
        await super().start()
        if self._is_first:  # not before: nobody may have listened when this began to
            for each in self._server.sockets:  # type: ignore[union-attr]
                each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


async def listen(
    app: web.Application,
    *places: Place,
    **options: Any,  # noqa: ANN401 - as aiohttp has them
) -> tuple[web.AppRunner, int]:
    """Listen on the running event loop.

    Args:
        app: what answers.
        places: the first one's port is returned.
        options: of aiohttp's request handler.

    Returns:
        The runner, to be cleaned up, and the port.

    Raises:
        PortInUseError: an address cannot be listened on.
    """
    runner = web.AppRunner(app, access_log=None, **options)
    await runner.setup()
    for place in places:
        try:
            await _Site(runner, place).start()
        except OSError as error:
            await runner.cleanup()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES, errno.EADDRNOTAVAIL):
                raise
            raise PortInUseError(
                f"Nothing can listen on {place.host}:{place.port}: {error.strerror}.",
                remedy="Stop the other process, or set the port to 0 or another one.",
            ) from error
    return runner, int(runner.addresses[0][1])


async def run_until_interrupted(app: web.Application, place: Place, say: Callable[[str], object]) -> None:
    """Serve until SIGINT or SIGTERM; running requests are finished."""
    runner, port = await listen(app, place)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    say(f"listening on {'https' if place.secured else 'http'}://{place.host}:{port}")
    await stop.wait()
    await runner.cleanup()


def party(*routes: web.RouteDef, most_bytes: int = _MOST_BYTES) -> web.Application:
    """An application of its own with these routes and GET /health; every refusal is a problem.

    Args:
        routes: their handlers may raise any error.
        most_bytes: a larger body is refused.
    """
    app = web.Application(client_max_size=most_bytes, middlewares=[problems(refusal)])
    app.add_routes([*routes, web.get("/health", _health)])
    return app


def for_enrolled(
    clients: Enrolment, handle: Callable[[web.Request, bytes], Awaitable[web.Response]]
) -> Handler:
    """A handler for enrolled clients alone; `handle` gets their credential, `Authorization: Bearer HEX`."""

    async def known(request: web.Request) -> web.Response:
        try:
            credential = bytes.fromhex(request.headers.get("Authorization", "").removeprefix("Bearer "))
        except ValueError:
            credential = b""
        if not await asyncio.to_thread(clients.enrolled, credential):
            return stranger()
        return await handle(request, credential)

    return known


async def list_in(request: web.Request, what: str) -> list[bytes]:
    """The MessagePack list that a body is, of blinded things called `what`.

    Raises:
        WireError: it is none.
    """
    try:
        return msgspec.msgpack.decode(await request.read(), type=list[bytes])
    except msgspec.MsgspecError as error:
        raise WireError(
            f"The body is a MessagePack list of blinded {what}.", remedy="Ask with the same version."
        ) from error


def binary(body: bytes) -> web.Response:
    """Bytes as an answer."""
    return web.Response(body=body, content_type="application/octet-stream")


async def _health(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
