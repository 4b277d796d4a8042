"""`penrose up`, `status` and `down`: the service as an operator runs it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from penrose_ray.actors.live_page import LivePage, LiveState
from penrose_ray.cli.control import LONG_S, ControlServer, is_running, request
from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows, say
from penrose_ray.cli.precheck import precheck
from penrose_ray.clock import SystemClock
from penrose_ray.errors import PenroseError, TorError, TransportError
from penrose_ray.release.audit import FILE, SCALED, AuditLog
from penrose_ray.settings import Settings, load_settings
from penrose_ray.transport.tor.service import OnionService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penrose_ray.actors.handovers import Attempt
    from penrose_ray.actors.topology import Topology

_DOWN_S = 300.0
_POLL_S = 0.1
_LOOK_PAUSES = 49.0
"""Pause after a look, in times of what it took."""
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
    precheck(settings, draft)
    tor = settings.transport.tor
    onion = OnionService.from_settings(tor) if tor else None
    from penrose_ray.actors.otel import export  # noqa: PLC0415 - an option
    from penrose_ray.actors.topology import build  # noqa: PLC0415 - Ray takes 0.3 s to import

    audit = AuditLog(settings.service.state_dir / FILE, SystemClock())
    running = _Running(audit)
    with contextlib.ExitStack() as stack:
        stack.callback(export("driver"))
        stack.enter_context(ControlServer(settings.service.state_dir, running.commands()))
        say("starting the service")
        topology = stack.enter_context(build(settings, draft))
        signal.signal(signal.SIGTERM, lambda *_: running.ending.set())
        if onion:
            stack.callback(onion.stop)
            _publish(onion, topology)
        topology.start_clients()
        running.topology = topology
        live = LiveState(topology.task, SystemClock())
        shown = stack.enter_context(LivePage(live, topology.task, settings.service.page_port))
        say(f"task {topology.task.task_id.hex()}\nthe live page is at {shown.url}")
        say(f"releases are signed by {topology.ledger_signer.hex()}")
        audit.note("started", f"task {topology.task.task_id.hex()[:16]}")
        if settings.service.gateways > 1:
            say(f"{settings.service.gateways} gateways share the next address")
        say(f"reports are taken at {topology.url}")
        _serve(topology, settings, running, onion, live)
        running.topology = None
        say("draining")
        audit.note("draining")
        topology.stop_clients()
    _tell(topology.handovers.ended(), audit)
    audit.note("stopped")
    say("stopped; everything that was acknowledged is on disk")


class _Running:
    """What the control socket may ask of a service, which has a topology between start and end only."""

    def __init__(self, audit: AuditLog) -> None:
        self.ending = threading.Event()
        self.topology: Topology | None = None
        self.audit = audit

    def commands(self) -> dict[str, Callable[..., object]]:
        changing: dict[str, Callable[..., object]] = {
            "compact": self._compact,
            "release": self._release,
            "open": self._open,
            "merge": self._merge,
            "split": self._split,
        }
        others = {"status": self._status, "classes": self._classes, "down": self._stop}
        return {**others, **{name: self._noted(name, do) for name, do in changing.items()}}

    def _noted(self, name: str, command: Callable[..., object]) -> Callable[..., object]:
        """The command, with what became of it in the audit log."""

        def run(*arguments: str) -> object:
            try:
                result = command(*arguments)
            except PenroseError as error:
                self.audit.note("command", f"{name} refused: {error.code}")
                raise
            self.audit.note("command", name)
            return result

        return run

    def _status(self) -> object:
        return self._need().status()

    def _classes(self) -> object:
        return self._need().classes.list()

    def _merge(self, kept: str, gone: str) -> object:
        return self._need().classes.merge(kept, gone)

    def _split(self, class_id: str, snippet_hash: str) -> object:
        return self._need().classes.split(class_id, snippet_hash)

    def _compact(self) -> object:
        return self._need().pool.compact()

    def _release(self) -> object:
        return [
            {
                "batch": each.batch,
                "sums": len(each.entries),
                "reports": sum(entry.weight for entry in each.entries),
                "withheld_sums": each.withheld.sums,
            }
            for each in self._need().release_due()
        ]

    def _open(self) -> object:
        return [each.row() for each in self._need().open_released()]

    def _stop(self) -> str:
        try:
            self.audit.note("command", "down")  # first: the other thread notes at once that it drains
        finally:
            self.ending.set()
        return "stopping"

    def _need(self) -> Topology:
        if self.topology is None:
            raise TransportError("it is starting or draining.", remedy="Ask again in a moment.")
        return self.topology


class _Looks:
    """Feeds the live page; slow looks are taken less often and cost a fiftieth of the time at most."""

    def __init__(self, live: LiveState) -> None:
        self._live = live
        self._not_before_s = 0.0

    def take(self, topology: Topology) -> None:
        """Look at the service, if it is time."""
        started_s = time.monotonic()
        if started_s < self._not_before_s:
            return
        if look := topology.look():
            self._live.note(look)
        now_s = time.monotonic()
        self._not_before_s = now_s + _LOOK_PAUSES * (now_s - started_s)


def _publish(onion: OnionService, topology: Topology) -> None:
    say("publishing onion services")
    onion.start(urlsplit(topology.url).port or 0)
    for address in onion.addresses:
        say(f"reports are taken at http://{address}")


def _serve(
    topology: Topology,
    settings: Settings,
    running: _Running,
    onion: OnionService | None,
    live: LiveState,
) -> None:
    looks = _Looks(live)
    looks.take(topology)
    while not running.ending.wait(settings.service.scale_every_s):
        decision = topology.tend()
        looks.take(topology)
        _tell(topology.handovers.ended(), running.audit)
        if decision.delta:
            say(f"{decision.delta:+d} shards: {decision.reason}")
            running.audit.note(SCALED, f"{decision.delta:+d}: {decision.reason}", abs(decision.delta))
        if onion and onion.process.pid is None:
            try:
                _publish(onion, topology)
            except TorError as error:
                say(f"{error.message} It is started again.")


def _tell(attempts: Sequence[Attempt], audit: AuditLog) -> None:
    for each in (handover for attempt in attempts for handover in attempt.handed_over):
        text = f"batch {each.batch}: {len(each.entries)} sums, {each.withheld.sums} withheld"
        say(f"handed over {text}")
        audit.note("handed over", text)
    for batch, failure in (item for attempt in attempts for item in attempt.failed.items()):
        say(f"batch {batch} was not handed over and will be tried again: {failure.text}")
        audit.note("hand-over failed", f"batch {batch}: {failure.code}")


def folder_of(config: Path, overrides: list[str] | None) -> Path:
    """Where the service that a configuration describes has its control socket."""
    settings, _ = load_settings(config, tuple(overrides or ()))
    return settings.service.state_dir


def status(config: ConfigArgument, overrides: SetOption = None, form: FormatOption = Format.TABLE) -> None:
    """Print shards, load, gateways, the scaler's decisions and hand-overs of the service that runs here.

    Example: penrose status configs/fleet.toml --format json
    """
    found = request(folder_of(config, overrides), "status")
    if form is Format.JSON:
        print_rows([found], tuple(found), form, "")
        return
    title = (
        f"{found['url']}  task {found['task_id'][:16]}  epoch {found['epoch']}  {found['classes']} classes  "
        f"{found['waiting']} reports waiting, {found['lag_s']} s behind  {found['pending']} shards coming"
    )
    print_rows(found["shards"], _SHARD_COLUMNS, form, title)
    for line in _gateways(found["gateways"]):
        say(line)
    for each in found["decisions"]:
        say(f"{each['delta']:+d} shards: {each['reason']}")
    for line in _handovers(found["handovers"]):
        say(line)


def _gateways(found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What `status` says of gateways: how many, where there are several, and what keeps one from its work."""
    if len(found) > 1:
        yield f"{sum(each['listens'] for each in found)} of {len(found)} gateways take reports"
    for each in found:
        if each["fault"]:
            yield f"{each['gateway']} takes no reports: {each['fault']}"


def _handovers(found: Mapping[str, Any]) -> Iterator[str]:
    """What `status` says of hand-overs."""
    if found["running"]:
        yield "a hand-over is running"
    yield f"next hand-over: {_utc(found['next_s']) if found['next_s'] else 'by hand'}"
    if (last := found["last"]) is None:
        yield "last hand-over: none yet"
    elif "error" in last:
        yield f"last hand-over: {last['error']}"
    else:
        yield f"last hand-over: {_utc(last['at_s'])}, batch {last['batch']}, {last['sums']} sums"
    for batch, why in found["failing"].items():
        yield f"batch {batch} was not handed over: {why}"


def _utc(time_s: float) -> str:
    return f"{datetime.fromtimestamp(time_s, tz=UTC):%Y-%m-%d %H:%M} UTC"


def compact(config: ConfigArgument, overrides: SetOption = None) -> None:
    """Let the service that runs here move its cold sums to service.archive.

    Example: penrose compact configs/fleet.toml
    """
    say(f"{request(folder_of(config, overrides), 'compact', timeout_s=LONG_S)} batches moved")


def down(config: ConfigArgument, overrides: SetOption = None) -> None:
    """Let the service that runs here finish what it has and end.

    Example: penrose down configs/fleet.toml
    """
    folder = folder_of(config, overrides)
    say(str(request(folder, "down")))
    deadline = time.monotonic() + _DOWN_S
    while is_running(folder):
        if time.monotonic() > deadline:
            raise TransportError(f"It still runs after {_DOWN_S:g} s.", remedy="Look at its output.")
        time.sleep(_POLL_S)
