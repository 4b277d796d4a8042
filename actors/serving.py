"""Small HTTP services on their own: listen, say where, end on a signal."""

from __future__ import annotations

import asyncio
import errno
import signal
from typing import TYPE_CHECKING, Any, NamedTuple

from aiohttp import web

from penrose_ray.errors import PortInUseError

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext


class Place(NamedTuple):
    """Where to listen; port 0 lets the kernel choose."""

    host: str
    port: int
    secured: SSLContext | None = None


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
            await web.TCPSite(runner, place.host, place.port, ssl_context=place.secured).start()
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
    say(f"listening on {'https' if place.secured else 'http'}://{place.host}:{port}")
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()


def credential_of(request: web.Request) -> bytes:
    """The credential of an enrolled client, `Authorization: Bearer HEX`; empty when it is none."""
    try:
        return bytes.fromhex(request.headers.get("Authorization", "").removeprefix("Bearer "))
    except ValueError:
        return b""


async def health(_request: web.Request) -> web.Response:
    """GET /health."""
    return web.json_response({"status": "ok"})
