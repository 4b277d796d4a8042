"""Serving until interrupted: what every party's server command shares."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from penrose_ray.cli.output import say

if TYPE_CHECKING:
    from aiohttp import web

HostOption = Annotated[str, typer.Option("--host", help="Address to listen at.")]
PortOption = Annotated[int, typer.Option("--port", help="Port to listen at; 0 lets the kernel choose.")]


def run_server(app: web.Application, host: str, port: int) -> None:
    """Answer over HTTP until SIGINT or SIGTERM; raises like `penrose_ray.actors.serving.listen`."""
    from penrose_ray.actors.serving import run_until_interrupted  # noqa: PLC0415 - the server's libraries

    asyncio.run(run_until_interrupted(app, host, port, say))
