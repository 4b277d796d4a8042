"""An HTTP service in a thread of its own, on a port from the kernel."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penrose_ray.actors.serving import Place, listen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aiohttp import web


@contextmanager
def serving(app: web.Application) -> Iterator[str]:
    """Its address, http://HOST:PORT."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        runner, port = asyncio.run_coroutine_threadsafe(listen(app, Place("127.0.0.1", 0)), loop).result()
        yield f"http://127.0.0.1:{port}"
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
