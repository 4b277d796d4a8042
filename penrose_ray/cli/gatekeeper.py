"""`penrose gatekeeper`: a third party's share at work."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from penrose_ray.cli.given import content_of, hexadecimal
from penrose_ray.cli.output import HostOption, PortOption, say
from penrose_ray.errors import TaskError


def gatekeeper(
    share: Annotated[Path, typer.Argument(help="The file of this party's key share.")],
    task: Annotated[Path, typer.Argument(help="The signed task.")],
    ledger_signer: Annotated[
        str, typer.Option("--ledger-signer", help="The ledger's key, hexadecimal, as its operator told you.")
    ],
    store: Annotated[Path, typer.Option("--store", help="What it remembers (SQLite).")] = Path(
        "gatekeeper.sqlite"
    ),
    host: HostOption = "127.0.0.1",
    port: PortOption = 8471,
) -> None:
    """Decrypt this party's part of released sums, each once, until interrupted.

    Example: penrose gatekeeper share-2.key fleet.task --ledger-signer 3f0c...
    """
    from penrose_ray.actors.gatekeeper import Gatekeeper, application  # noqa: PLC0415 - the server's libraries
    from penrose_ray.actors.serving import run_until_interrupted  # noqa: PLC0415

    signer = hexadecimal("--ledger-signer", ledger_signer, source="penrose release list")
    keeper = Gatekeeper(share, content_of(task, TaskError), signer, store)
    try:
        asyncio.run(run_until_interrupted(application(keeper), host, port, say))
    finally:
        keeper.close()
