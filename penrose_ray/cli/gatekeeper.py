"""`penrose gatekeeper`: a third party's share at work."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penrose_ray.cli.given import hexadecimal, refuse_design_key
from penrose_ray.cli.passphrase import VariableOption
from penrose_ray.cli.serving import CertificateOption, HostOption, KeyOption, PortOption, run_server
from penrose_ray.task import read_signed, read_task, signer_of


def gatekeeper(  # noqa: PLR0913 - each argument is an option of the command
    share: Annotated[Path, typer.Argument(help="The file of this party's key share.")],
    task: Annotated[Path, typer.Argument(help="The signed task.")],
    ledger_signer: Annotated[
        str, typer.Option("--ledger-signer", help="The ledger's key, hexadecimal, as its operator told you.")
    ],
    store: Annotated[Path, typer.Option("--store", help="What it remembers (SQLite).")] = Path(
        "gatekeeper.sqlite"
    ),
    host: HostOption = "127.0.0.1",
    port: PortOption = 8473,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    *,
    passphrase_variable: VariableOption = "",
) -> None:
    """Decrypt this party's part of released sums, each once, until interrupted.

    Example: penrose gatekeeper share-2.key fleet.task --ledger-signer 3f0c...
    """
    from penrose_ray.actors.gatekeeper import Gatekeeper, application  # noqa: PLC0415 - the server's libraries

    signer = hexadecimal("--ledger-signer", ledger_signer, source="penrose release list")
    trusted = read_task(task)
    refuse_design_key(signer, signer_of(read_signed(task)))
    keeper = Gatekeeper(share, trusted, signer, store, passphrase_variable=passphrase_variable)
    try:
        run_server(application(keeper), host, port, certificate, key)
    finally:
        keeper.close()
