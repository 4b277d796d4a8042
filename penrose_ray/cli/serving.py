"""Serving until interrupted: what every party's server command shares."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penrose_ray.cli.output import say
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from aiohttp import web

HostOption = Annotated[str, typer.Option("--host", help="Address to listen at.")]
PortOption = Annotated[
    int, typer.Option("--port", min=0, max=65_535, help="Port to listen at; 0 lets the kernel choose.")
]
CertificateOption = Annotated[
    Path | None, typer.Option("--certificate", help="This party's certificate, PEM: TLS 1.3, no plain HTTP.")
]
KeyOption = Annotated[Path | None, typer.Option("--key", help="The certificate's private key, PEM.")]


def run_server(
    app: web.Application, host: str, port: int, certificate: Path | None, key: Path | None
) -> None:
    """Answer until SIGINT or SIGTERM, by TLS 1.3 where there is a certificate, else by plain HTTP.

    Raises:
        ConfigError: a certificate without a key or the other way round, or files that are none.
        PortInUseError: the address cannot be listened on.
    """
    from penrose_ray.actors.serving import Place, run_until_interrupted  # noqa: PLC0415 - the server's libraries
    from penrose_ray.transport.link import is_loopback  # noqa: PLC0415
    from penrose_ray.transport.tls import server_context  # noqa: PLC0415

    if certificate is not None and key is not None:
        place = Place(host, port, server_context(certificate, key))
    elif certificate is key:
        place = Place(host, port)
        if not is_loopback(host):
            say("nothing protects this address, and clients refuse it: give --certificate and --key")
    else:
        raise ConfigError("--certificate and --key belong together.", remedy="Give both, or none.")
    asyncio.run(run_until_interrupted(app, place, say))
