"""`penrose keyserver`: the key server of identity mode `oprf`, a party apart from the aggregation service."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated

import typer

from penrose_ray.cli.enrolment import StateArgument, add_enrolment
from penrose_ray.cli.output import say
from penrose_ray.cli.passphrase import VariableOption, passphrase_in
from penrose_ray.cli.serving import CertificateOption, HostOption, KeyOption, PortOption, run_server
from penrose_ray.clock import SystemClock
from penrose_ray.release.points import Points
from penrose_ray.snippet.key_server import EPOCH_S, EpochKeys, LocalKeyServer

app = typer.Typer(no_args_is_help=True, help="Evaluate clients' blinded signatures: enrol, serve.")
add_enrolment(app, "keyserver")
POINTS_PER_EPOCH = 20_000
KeyArgument = Annotated[Path, typer.Argument(help="The key server's key file.")]


@app.command("new")
def new(
    path: KeyArgument,
    epoch_s: Annotated[int, typer.Option("--epoch-s", min=60, help="How long a key is good.")] = EPOCH_S,
    passphrase_variable: VariableOption = "",
) -> None:
    """Make the keys of an epoch and print the public one, `identity_key` of a task in mode `oprf`.

    Example: penrose keyserver new oprf.key
    """
    keys = EpochKeys.generate(SystemClock().now_s(), epoch_s=epoch_s)
    keys.write(path, passphrase=passphrase_in(passphrase_variable))
    say(f"{path} written; it changes with every epoch, so a copy of it is worth a day")
    typer.echo(base64.b64encode(keys.public()).decode())


@app.command("serve")
def serve(
    path: KeyArgument,
    state: StateArgument,
    points_per_epoch: Annotated[
        int, typer.Option("--points-per-epoch", min=1, help="Values that a client may have evaluated.")
    ] = POINTS_PER_EPOCH,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8471,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    passphrase_variable: VariableOption = "",
) -> None:
    """Answer clients over HTTP until interrupted; the key file goes on with each epoch.

    Example: penrose keyserver serve oprf.key keyserver.sqlite
    """
    from penrose_ray.actors.keyserver import application  # noqa: PLC0415 - the server's libraries

    passphrase = passphrase_in(passphrase_variable)
    keys = EpochKeys.read(path, passphrase=passphrase)
    points = Points(state, per_epoch=points_per_epoch)

    def keep(advanced: EpochKeys) -> None:
        advanced.write(path, passphrase=passphrase, replace=True)

    server = LocalKeyServer(keys, points, SystemClock(), keep=keep)
    server.current()
    try:
        run_server(application(server, points), host, port, certificate, key)
    finally:
        points.close()
