"""Ports of 127.0.0.1 that are known before who listens there has started."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def held_ports(count: int) -> Iterator[list[int]]:
    """Ports that the kernel chose and gives to nobody else in this block, be it for a server or a connection.

    Each is bound here, with SO_REUSEADDR and without listening, so a server that sets SO_REUSEADDR, as
    servers do, can listen there and again after its restart (Linux).
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        yield [each.getsockname()[1] for each in sockets]
