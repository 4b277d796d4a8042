"""`penrose up`, `status` and `down`: the service as an operator runs it."""

from __future__ import annotations

import contextlib
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from penrose_ray.cli.control import ControlServer, refuse_if_running, request
from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows, say
from penrose_ray.errors import TorError
from penrose_ray.settings import Settings, load_settings
from penrose_ray.transport.tor.service import OnionService

if TYPE_CHECKING:
    from penrose_ray.actors.topology import Topology

ConfigArgument = Annotated[Path, typer.Argument(help="The service's configuration.")]
_SHARD_COLUMNS = ("shard", "buckets", "reports", "sums", "busy_s")


def up(
    config: ConfigArgument,
    overrides: SetOption = None,
    address: Annotated[str, typer.Option("--address", help="A running Ray cluster to join.")] = "",
) -> None:
    """Run the service (and the configuration's clients) until Ctrl-C, SIGTERM or penrose down.

    Example: penrose up configs/fleet.toml --address 10.0.0.5:6379
    """
    changes = [*(overrides or ()), *([f'service.ray_address="{address}"'] if address else ())]
    settings, draft = load_settings(config, tuple(changes))
    refuse_if_running(settings.service.state_dir)
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    tor = settings.transport.tor
    onion = OnionService.from_settings(tor) if tor else None
    from penrose_ray.actors.topology import build  # noqa: PLC0415 - Ray takes 0.3 s to import

    say("starting the service")
    with contextlib.ExitStack() as stack:
        topology = stack.enter_context(build(settings, draft))
        if onion:
            stack.callback(onion.stop)
            _publish(onion, topology)

        def stop() -> str:
            ending.set()
            return "stopping"

        commands = {"status": topology.status, "compact": topology.pool.compact, "down": stop}
        with ControlServer(settings.service.state_dir, commands):
            topology.start_clients()
            say(f"task {topology.task.task_id.hex()}\nreports are taken at {topology.url}")
            _serve(topology, settings, ending, onion)
        say("draining")
        topology.stop_clients()
    say("stopped; everything that was acknowledged is on disk")


def _publish(onion: OnionService, topology: Topology) -> None:
    say("publishing onion services")
    onion.start(urlsplit(topology.url).port or 0)
    for address in onion.addresses:
        say(f"reports are taken at http://{address}")


def _serve(
    topology: Topology, settings: Settings, ending: threading.Event, onion: OnionService | None
) -> None:
    while not ending.wait(settings.service.scale_every_s):
        decision = topology.tend()
        if decision.delta:
            say(f"{decision.delta:+d} shards: {decision.reason}")
        if onion and onion.process.pid is None:
            try:
                _publish(onion, topology)
            except TorError as error:
                say(f"{error.message} It is started again.")


def status(config: ConfigArgument, form: FormatOption = Format.TABLE) -> None:
    """Print shards, load, buckets and the scaler's last decisions of the service that runs here.

    Example: penrose status configs/fleet.toml --format json
    """
    settings, _ = load_settings(config)
    found = request(settings.service.state_dir, "status")
    if form is Format.JSON:
        print_rows([found], tuple(found), form, "")
        return
    title = (
        f"{found['url']}  task {found['task_id'][:16]}  epoch {found['epoch']}  {found['classes']} classes  "
        f"{found['waiting']} reports waiting  {found['pending']} shards coming"
    )
    print_rows(found["shards"], _SHARD_COLUMNS, form, title)
    for each in found["decisions"]:
        say(f"{each['delta']:+d} shards: {each['reason']}")


def compact(config: ConfigArgument) -> None:
    """Let the service that runs here move its cold sums to service.archive.

    Example: penrose compact configs/fleet.toml
    """
    settings, _ = load_settings(config)
    say(f"{request(settings.service.state_dir, 'compact')} batches moved")


def down(config: ConfigArgument) -> None:
    """Let the service that runs here finish what it has and end.

    Example: penrose down configs/fleet.toml
    """
    settings, _ = load_settings(config)
    say(str(request(settings.service.state_dir, "down")))
