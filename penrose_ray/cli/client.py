"""`penrose client`: the daemon of a GPU's host, and switching it off."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import threading
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penrose_ray.cli.given import SocksOption, quoted, warn_of_plain_http
from penrose_ray.cli.output import say
from penrose_ray.cli.receipts import Receipts
from penrose_ray.cli.trusted import SignerOption, trusted_file
from penrose_ray.cli.watched import (
    DEFAULT_BUS,
    DEFAULT_EXPORTER,
    BusOption,
    DbcOption,
    ExporterOption,
    SourceOption,
    TraceOption,
    Watched,
    source_for,
    source_of,
    variables,
)
from penrose_ray.errors import ConfigError, PolicyError
from penrose_ray.transport.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.actors.client import Enrolled
    from penrose_ray.actors.moments import Moments
    from penrose_ray.actors.sent_reports import SentReports
    from penrose_ray.actors.state_directory import StateDirectory
    from penrose_ray.capture.guard import Duty
    from penrose_ray.capture.source import EventSource
    from penrose_ray.policy import OwnerPolicy
    from penrose_ray.seal import Contribution
    from penrose_ray.settings import EnrolmentSettings
    from penrose_ray.task import Task
    from penrose_ray.transport.outbox import Outbox
    from penrose_ray.transport.route import Way
    from penrose_ray.transport.uploader import Uploader
    from penrose_ray.wire import Report

app = typer.Typer(no_args_is_help=True, help="Run the client of this host, or switch it off.")
DEFAULT_STATE = Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser() / "penrose"
StateOption = Annotated[Path, typer.Option("--state", help="Where rings, spool and key lie.")]


ReceiptsOption = Annotated[
    Path | None,
    typer.Option(
        "--receipts", help="Note the ids of this host's reports here, to check them with later; private."
    ),
]


@app.command("run")
def run(  # noqa: PLR0913 - each argument is an option of the command
    task_file: Annotated[Path, typer.Argument(metavar="TASK", help="The signed task.")],
    gateway: Annotated[
        list[str], typer.Option("--gateway", help="http(s)://HOST:PORT or http://ADDRESS.onion; repeatable.")
    ],
    policy_file: Annotated[Path, typer.Option("--policy", help="The owner's policy.toml.")],
    signer: SignerOption = "",
    source: SourceOption = None,
    trace: TraceOption = None,
    state: StateOption = DEFAULT_STATE,
    *,
    exporter: ExporterOption = DEFAULT_EXPORTER,
    dbc: DbcOption = None,
    bus: BusOption = DEFAULT_BUS,
    socks: SocksOption = "",
    enrolment_file: Annotated[
        Path | None, typer.Option("--enrolment", help="TOML: issuer and key server that know this client.")
    ] = None,
    gap_s: Annotated[
        float, typer.Option("--gap-s", min=0, help="Mean pause between two uploads; 0 for none.")
    ] = 300.0,
    receipts: ReceiptsOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be sent instead.")] = False,
) -> None:
    """Watch this host's GPU programs for a task and send sealed reports until SIGTERM or Ctrl-C.

    Example: penrose client run fleet.task --gateway http://HOST:8443 --policy policy.toml --signer 3f0c...

    Programs are captured when they are started by `penrose client env`, or with the variables that it prints.
    Sources nvml, dcgm, can and perfetto read whole devices: one class for each model, beside all programs.
    """
    from penrose_ray.actors.daemon import HostClient  # noqa: PLC0415 - numpy and capture
    from penrose_ray.actors.state_directory import RINGS, StateDirectory  # noqa: PLC0415
    from penrose_ray.clock import SystemClock  # noqa: PLC0415
    from penrose_ray.settings import EnrolmentSettings  # noqa: PLC0415
    from penrose_ray.toml_file import load_section  # noqa: PLC0415
    from penrose_ray.transport.route import kind_of  # noqa: PLC0415

    kind_of(gateway, socks)
    warn_of_plain_http(gateway)
    task = trusted_file(task_file, signer)
    enrolment = load_section(enrolment_file, EnrolmentSettings) if enrolment_file else EnrolmentSettings()
    policy = _policy(policy_file)
    policy.check(task)
    source = source_for(task, source, where := Watched(state / RINGS, trace, exporter, dbc, bus))
    if dry_run and receipts:
        raise ConfigError("--receipts: a dry run sends nothing.", remedy="Leave it out.")
    directory = StateDirectory(state)
    directory.lock()
    with contextlib.ExitStack() as stack:
        stack.callback(directory.release)
        ending = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ending.set())
        if dry_run:
            parts = _rehearsed(task, enrolment)
        else:
            outbox = _outbox(task, policy, gateway, directory, stack, socks=socks, pace=Pace(gap_s))
            parts = _kept(task, enrolment, outbox, directory, stack)
            if receipts:
                parts = parts._replace(on_contribution=Receipts(receipts).note)
        directory.note_watched(source)
        watched = source_of(source, where, task)
        client = HostClient(
            watched,
            task,
            policy,
            parts.outbox,
            clock=SystemClock(),
            enrolled=parts.enrolled,
            sent=parts.sent,
            moments=parts.moments,
            on_contribution=parts.on_contribution,
        )
        say(f"watching {source} for task {task.name}, budget {policy.max_overhead_percent:g} % of a core")
        duties = _Duties(watched)
        counts = client.run(ending.is_set, wait=ending.wait, on_duty=duties.note)
        say(duties.last if dry_run else f"{duties.last}\n{len(parts.outbox)} reports wait in the spool")
    say(json.dumps(asdict(counts)))


@app.command("env")
def env(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- CMD...]", help="Run this under the variables instead.")
    ] = None,
    state: StateOption = DEFAULT_STATE,
    source: SourceOption = None,
) -> None:
    """Start a program whose launches reach the client of this host, or print the variables for that.

    Example: penrose client env -- python train.py

    Without a program the variables are printed as a shell reads them: eval "env $(penrose client env) CMD".
    """
    from penrose_ray.actors.state_directory import StateDirectory  # noqa: PLC0415

    directory = StateDirectory(state)
    if command:
        try:
            os.execvpe(command[0], command, variables(directory.rings, directory.watched, source, os.environ))  # noqa: S606 - the owner's
        except OSError as error:
            raise ConfigError(
                f"{command[0]} cannot be started: {error.strerror}.", remedy="Check the program's name."
            ) from error
    for name, value in variables(directory.rings, directory.watched, source, {}).items():
        typer.echo(f"{name}={shlex.quote(value)}")


@app.command("off")
def off(state: StateOption = DEFAULT_STATE) -> None:
    """Stop the client of this host and delete rings, spool and key.

    Example: penrose client off
    """
    from penrose_ray.actors.state_directory import StateDirectory  # noqa: PLC0415

    if state.is_symlink():
        raise ConfigError(
            f"{state} is a symbolic link.", remedy=f"Name what it leads to: --state {quoted(state.resolve())}"
        )
    if not state.exists():
        say(f"nothing to switch off: there is no {state}")
        return
    ran, kept = StateDirectory(state).switch_off()
    say(f"{'stopped' if ran else 'no client ran'}; what clients keep in {state} is deleted")
    if kept:
        say(f"kept, for no client wrote it: {', '.join(kept)}")


class _Duties:
    """Says when the overhead guard switches capture off or on, and what the source warns of."""

    def __init__(self, source: EventSource) -> None:
        self._source = source
        self._warned = 0
        self._on = True
        self.last = ""

    def note(self, duty: Duty) -> None:
        self.last = f"overhead: {duty.reason}"
        if duty.on != self._on:
            self._on = duty.on
            say(f"capture {'on' if duty.on else 'off'}: {duty.reason}")
        warnings = self._source.health().warnings
        for warning in warnings[self._warned :]:
            say(f"warning: {warning}")
        self._warned = len(warnings)


def _policy(path: Path) -> OwnerPolicy:
    from penrose_ray.policy import load_policy  # noqa: PLC0415

    if not path.exists():
        raise PolicyError(
            f"There is no policy {path}.", remedy="The owner writes one; see configs/policy.toml."
        )
    return load_policy(path)


def _outbox(
    task: Task,
    policy: OwnerPolicy,
    gateways: list[str],
    directory: StateDirectory,
    stack: contextlib.ExitStack,
    *,
    socks: str,
    pace: Pace,
) -> Outbox:
    from penrose_ray.clock import SystemClock  # noqa: PLC0415
    from penrose_ray.transport.background import BackgroundOutbox  # noqa: PLC0415
    from penrose_ray.transport.outbox import Outbox  # noqa: PLC0415
    from penrose_ray.transport.route import route_to  # noqa: PLC0415
    from penrose_ray.transport.several import AnyOf  # noqa: PLC0415
    from penrose_ray.transport.spool import Spool, spool_key  # noqa: PLC0415

    spool = stack.enter_context(
        Spool(directory.spool, spool_key(directory.spool_key, directory.spool, directory.sent))
    )
    route = route_to(gateways, task.task_id, directory.path, socks=socks)
    uploader = AnyOf([_attested(way, policy, task) for way in route.ways])
    if not route.anonymous and not pace.mean_gap_s:
        return Outbox(uploader, SystemClock(), queue=spool)
    outbox = BackgroundOutbox(uploader, SystemClock(), queue=spool, pace=pace)
    for step in (outbox.close, route.close, outbox.end):  # undone from the last one on
        stack.callback(step)
    return outbox


class _Parts(NamedTuple):
    """What a client is put together from."""

    outbox: Outbox
    enrolled: Enrolled
    sent: SentReports | None = None
    moments: Moments | None = None
    on_contribution: Callable[[Contribution, Report], object] | None = None


def _rehearsed(task: Task, enrolment: EnrolmentSettings) -> _Parts:
    """Of a dry run: it prints, keeps nothing and asks nobody."""
    from penrose_ray.actors.rehearsal import rehearsal  # noqa: PLC0415
    from penrose_ray.clock import SystemClock  # noqa: PLC0415
    from penrose_ray.transport.direct import DirectUploader  # noqa: PLC0415
    from penrose_ray.transport.outbox import Outbox  # noqa: PLC0415

    shown = _Shown()
    outbox = Outbox(DirectUploader(shown.print), SystemClock())
    if task.tokens_per_day or task.identity != "plain":
        say("nobody is asked: tokens are made up, and so is the name key unless it lies in name_key_file")
    return _Parts(outbox, rehearsal(task, enrolment), on_contribution=shown.note)


def _kept(
    task: Task,
    enrolment: EnrolmentSettings,
    outbox: Outbox,
    directory: StateDirectory,
    stack: contextlib.ExitStack,
) -> _Parts:
    """Of a real client: what its earlier lives left in its state."""
    from penrose_ray.actors.identities import enrolled  # noqa: PLC0415
    from penrose_ray.actors.moments import Moments  # noqa: PLC0415
    from penrose_ray.actors.sent_reports import SentReports  # noqa: PLC0415
    from penrose_ray.clock import SystemClock  # noqa: PLC0415
    from penrose_ray.transport.spool import spool_key  # noqa: PLC0415

    if enrolment.tokens_file is None:
        enrolment = enrolment.model_copy(update={"tokens_file": directory.tokens})
    key = spool_key(directory.spool_key, directory.spool, directory.sent)
    sent, moments = SentReports(task, directory.sent, key), Moments(key)
    stack.callback(sent.close)
    return _Parts(outbox, enrolled(task, enrolment, SystemClock(), moments), sent, moments)


def _attested(way: Way, policy: OwnerPolicy, task: Task) -> Uploader:
    if not policy.attestation_key:
        return way.uploader
    from penrose_ray.actors.attested import AttestedUploader  # noqa: PLC0415 - few owners ask for it

    return AttestedUploader(way.uploader, policy, task.task_id, way.quote)


class _Shown:
    """A report field by field, as JSON on one line; `record` holds exactly the bytes that would be sent.

    Fields are noted before they are sealed: those under `sealed` can be read by the service alone.
    """

    def __init__(self) -> None:
        self._reports: deque[Report] = deque()

    def note(self, _contribution: Contribution, report: Report) -> None:
        self._reports.append(report)

    def print(self, record: bytes) -> None:
        from penrose_ray.wire import SEALED_VERSION, Tags  # noqa: PLC0415

        report = self._reports.popleft()
        fields = {name: getattr(report, name) for name in report.__struct_fields__}
        plain = {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}
        sealed = Tags.__struct_fields__ if record[0] == SEALED_VERSION else ()
        typer.echo(json.dumps({**plain, "sealed": sealed, "record": record.hex()}))
