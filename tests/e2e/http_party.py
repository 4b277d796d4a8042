"""An HTTP service in a thread of its own, on a port from the kernel."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penrose_ray.actors.serving import Place, listen

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ssl import SSLContext

    from aiohttp import web

_MOST_S = 300.0


@contextmanager
def serving(app: web.Application, secured: SSLContext | None = None) -> Iterator[str]:
    """Its address: http://HOST:PORT, https where it is secured."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        place = Place("127.0.0.1", 0, secured)
        runner, port = asyncio.run_coroutine_threadsafe(listen(app, place), loop).result(_MOST_S)
        yield f"{'https' if secured else 'http'}://127.0.0.1:{port}"
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(_MOST_S)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
