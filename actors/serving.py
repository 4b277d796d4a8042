"""Small HTTP services on their own: listen, say where, end on a signal."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from aiohttp import web

from penrose_ray.errors import PortInUseError

if TYPE_CHECKING:
    from collections.abc import Callable


async def listen(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Listen on the running event loop; returns the runner, to be cleaned up, and the port.

    Raises:
        PortInUseError: the address cannot be listened on.
    """
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise PortInUseError(
            f"Nothing can listen on {host}:{port}: {error.strerror}.", remedy="Choose another port."
        ) from error
    return runner, int(runner.addresses[0][1])


async def run_until_interrupted(
    app: web.Application, host: str, port: int, say: Callable[[str], object]
) -> None:
    """Serve until SIGINT or SIGTERM; running requests are finished."""
    runner, port = await listen(app, host, port)
    say(f"listening on http://{host}:{port}")
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()
