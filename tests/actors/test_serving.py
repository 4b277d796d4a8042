"""Several processes at one address: who is let in, who is refused, who answers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import urllib.request
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from penrose_ray.actors.serving import Place, Sharing, listen
from penrose_ray.errors import PortInUseError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"
NOBODY = 65_534
JOIN = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
made = socket.socket()
made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
made.bind(("127.0.0.1", int(sys.argv[1])))
made.listen()
"""


@contextlib.asynccontextmanager
async def listener(name: str, port: int, sharing: Sharing) -> AsyncIterator[int]:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text=name)

    app = web.Application()
    app.router.add_get("/", answer)
    runner, port = await listen(app, Place(HOST, port, sharing=sharing))
    try:
        yield port
    finally:
        await runner.cleanup()


async def answers(port: int, count: int = 40) -> Counter[str]:
    """Who answers so many new connections."""

    def ask() -> str:
        with urllib.request.urlopen(f"http://{HOST}:{port}/", timeout=30) as answer:
            return str(answer.read().decode())

    return Counter([await asyncio.to_thread(ask) for _ in range(count)])


async def refused(port: int, sharing: Sharing) -> str:
    with pytest.raises(PortInUseError) as caught:
        async with listener("late", port, sharing):
            pass
    return str(caught.value)


def test_those_who_join_share_connections_and_the_others_go_on_when_one_goes() -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as first:
            port = await first.enter_async_context(listener("first", 0, Sharing.FIRST))
            async with listener("second", port, Sharing.JOINING):
                assert set(await answers(port)) == {"first", "second"}
                await first.aclose()
                assert set(await answers(port)) == {"second"}
                async with listener("again", port, Sharing.JOINING):
                    assert set(await answers(port)) == {"second", "again"}

    asyncio.run(run())


@pytest.mark.parametrize("theirs", [Sharing.NONE, Sharing.FIRST])
def test_the_first_one_is_refused_where_anybody_listens(theirs: Sharing) -> None:
    async def run() -> None:
        async with listener("there", 0, theirs) as port:
            for ours in (Sharing.NONE, Sharing.FIRST):
                assert f"Nothing can listen on {HOST}:{port}" in await refused(port, ours)
            assert set(await answers(port)) == {"there"}

    asyncio.run(run())


def test_nobody_joins_one_who_listens_alone() -> None:
    async def run() -> None:
        async with listener("there", 0, Sharing.NONE) as port:
            await refused(port, Sharing.JOINING)
            assert set(await answers(port)) == {"there"}

    asyncio.run(run())


def test_a_program_that_shares_its_port_is_not_joined_by_the_first_one() -> None:
    async def run() -> None:
        with socket.socket() as foreign:
            foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            foreign.bind((HOST, 0))
            foreign.listen()
            await refused(foreign.getsockname()[1], Sharing.FIRST)

    asyncio.run(run())


def joined_as(port: int, user: int) -> bool:
    """Whether a program of that user that asks to share the port may listen there."""
    command = [sys.executable, "-I", "-c", JOIN, str(port), str(user)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        assert "Address already in use" in done.stderr, done.stderr
    return done.returncode == 0


def test_only_programs_of_the_same_user_can_come_between() -> None:
    async def run() -> None:
        async with listener("first", 0, Sharing.FIRST) as port:
            assert await asyncio.to_thread(joined_as, port, os.geteuid()), (
                "it could read this process' memory, too"
            )
            if os.geteuid() == 0:
                assert not await asyncio.to_thread(joined_as, port, NOBODY)

    asyncio.run(run())
