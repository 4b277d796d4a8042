"""`penrose label`: run a reference program as an enrolled client, then ask which classes it fell into."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penrose_ray.analyse.labels import FILE, Label, add_labels, check_name, read_labels
from penrose_ray.cli.given import (
    AuthoritiesOption,
    PlainOption,
    SocksOption,
    link_settings,
    warn_of_plain_http,
)
from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.cli.trusted import SignerOption, trusted_file
from penrose_ray.durable import replace
from penrose_ray.errors import ConfigError, GateError, LedgerError, TransportError

if TYPE_CHECKING:
    from penrose_ray.actors.reference import Receipt
    from penrose_ray.capture.recording import Recording
    from penrose_ray.task import Task
    from penrose_ray.transport.link import Link
    from penrose_ray.wire import Report

app = typer.Typer(no_args_is_help=True, help="Name classes by programs of your own.")
_SEND_S = 60.0
_PAUSE_S = 0.05
_OK, _NONE = 200, 404
_COLUMNS = ("name", "class", "gpu_model", "share", "batch")
OutOption = Annotated[Path, typer.Option("-o", "--out", help="The file of labels to add to.")]


@app.command("run")
def run(  # noqa: PLR0913 - each argument is an option of the command
    name: Annotated[str, typer.Argument(help="What the program is called.")],
    task_file: Annotated[Path, typer.Argument(metavar="TASK", help="The signed task.")],
    gateway: Annotated[str, typer.Option("--gateway", help="http(s)://HOST:PORT or http://ADDRESS.onion.")],
    receipt: Annotated[Path, typer.Option("--receipt", help="Where to keep what is asked with later.")],
    command: Annotated[list[str] | None, typer.Argument(metavar="-- CMD...", help="The program.")] = None,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="A recording of it instead of the program.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="How to capture: opencl or cuda; else all that work here.")
    ] = None,
    *,
    signer: SignerOption = "",
    enrolment_file: Annotated[
        Path | None, typer.Option("--enrolment", help="TOML: issuer and key server that know this client.")
    ] = None,
    socks: SocksOption = "",
) -> None:
    """Send the reports of a reference program, and keep a receipt to ask with when they are released.

    Example: penrose label run "resnet50 train" fleet.task --gateway URL --receipt r.json -- python train.py
    """
    from penrose_ray.actors.identities import enrolled  # noqa: PLC0415 - numpy
    from penrose_ray.actors.reference import reference_reports  # noqa: PLC0415 - as above
    from penrose_ray.clock import SystemClock  # noqa: PLC0415
    from penrose_ray.settings import EnrolmentSettings  # noqa: PLC0415
    from penrose_ray.toml_file import load_section  # noqa: PLC0415
    from penrose_ray.transport.route import kind_of  # noqa: PLC0415

    check_name(name)
    kind_of([gateway], socks)
    warn_of_plain_http([gateway])
    task = trusted_file(task_file, signer)
    enrolment = load_section(enrolment_file, EnrolmentSettings) if enrolment_file else EnrolmentSettings()
    known = enrolled(task, enrolment, SystemClock())
    recording = _recorded(command or [], trace, source)
    known.top_up()
    reports, kept = reference_reports(recording, task, name, clock=SystemClock(), enrolled=known)
    _write(receipt, kept)
    with tempfile.TemporaryDirectory(prefix="penrose-") as home:
        _send(task, gateway, Path(home), reports, socks=socks)
    say(f"{len(reports)} reports sent for {len(kept.classes)} classes; {receipt} written, keep it private")


@app.command("ask")
def ask(
    receipts: Annotated[list[Path], typer.Argument(metavar="RECEIPT...", help="From penrose label run.")],
    desk: Annotated[
        str, typer.Option("--desk", help="https://HOST:PORT of penrose release serve --classes.")
    ],
    out: OutOption = Path(FILE),
    authorities: AuthoritiesOption = None,
    *,
    allow_plain_http: PlainOption = False,
    socks: SocksOption = "",
    form: FormatOption = Format.TABLE,
) -> None:
    """Ask which classes the reports of reference programs fell into, and keep the answers as labels.

    Example: penrose label ask r.json --desk https://10.0.0.7:8472 -o releases/labels.json

    Only classes that passed the gate are told. Exit code 60 when there is none.
    """
    from penrose_ray.transport.link import Link  # noqa: PLC0415 - numpy

    settings = link_settings(desk, authorities, allow_plain_http=allow_plain_http, socks=socks)
    link = Link("release desk", desk, settings)
    labels, rows = [], []
    for path in receipts:
        found = _read(path)
        for each in found.classes:
            answer = _first_answer(link, each.reports)
            rows.append(
                {
                    "name": found.name,
                    "class": answer["class_id"] if answer else "not past the gate",
                    "gpu_model": each.gpu_model,
                    "share": each.share,
                    "batch": answer["batch"] if answer else "",
                }
            )
            if answer:
                model = answer["gpu_model"]
                labels.append(
                    Label(
                        task_id=found.task_id,
                        class_id=answer["class_id"],
                        gpu_model=model,
                        name=found.name,
                        share=each.share,
                    )
                )
    if labels:
        add_labels(out, labels)
        say(f"{len(labels)} labels written to {out}")
    print_rows(rows, _COLUMNS, form, "classes of the reference programs")
    if not labels:
        raise GateError(
            "None of these reports is in a release.",
            remedy="Ask again after the batch is released; a class under the gate is never told.",
        )


@app.command("show")
def show(
    labels: Annotated[Path, typer.Argument(help="A file of labels.")] = Path(FILE),
    form: FormatOption = Format.TABLE,
) -> None:
    """Print the labels of a file.

    Example: penrose label show releases/labels.json
    """
    if not labels.exists():
        raise ConfigError(f"There is no file {labels}.", remedy="penrose label ask writes one.")
    rows = [msgspec.structs.asdict(each) for each in read_labels(labels).labels]
    print_rows(rows, ("name", "class_id", "gpu_model", "share", "task_id"), form, str(labels))


def _recorded(command: list[str], trace: Path | None, source: str | None) -> Recording:
    if bool(command) == bool(trace):
        raise ConfigError("Give a program behind --, or --trace FILE.", remedy="One of the two.")
    if trace:
        from penrose_ray.capture.formats import read_recording  # noqa: PLC0415 - numpy

        return read_recording(trace)
    from penrose_ray.capture.survey import launchpad  # noqa: PLC0415 - the sources
    from penrose_ray.capture.tools.live import watch  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory(prefix="penrose-") as home:
        rings = Path(home) / "rings"
        recording, status = watch(launchpad(rings, source), command, rings)
    if status:
        raise ConfigError(f"{command[0]} ended with {status}.", remedy="Name a program that ends well.")
    return recording


def _send(task: Task, gateway: str, home: Path, reports: list[Report], *, socks: str) -> None:
    """Send them one by one; raises what stands in the way."""
    from penrose_ray.clock import SystemClock  # noqa: PLC0415
    from penrose_ray.transport.outbox import Outbox  # noqa: PLC0415
    from penrose_ray.transport.route import route_to  # noqa: PLC0415
    from penrose_ray.wire import encode  # noqa: PLC0415

    route = route_to([gateway], task.task_id, home, socks=socks)
    try:
        outbox = Outbox(route.ways[0].uploader, SystemClock())
        for each in reports:
            outbox.put(encode(each, task.service_key))
        deadline = time.monotonic() + _SEND_S
        told: object = None
        while not outbox.flush():
            if outbox.last_error is not None and told is None:
                told = outbox.last_error
                say(f"{len(outbox)} reports wait: {outbox.last_error.message} Trying for {_SEND_S:g} s.")
            if time.monotonic() > deadline:
                reason = outbox.last_error.message if outbox.last_error else "The gateway is slow."
                raise TransportError(
                    f"{len(outbox)} of {len(reports)} reports were not sent: {reason}",
                    remedy="Check --gateway and that its service is up, then run this command again.",
                )
            time.sleep(_PAUSE_S)
        if outbox.counts.refused and outbox.last_error:
            raise outbox.last_error
    finally:
        route.close()


def _first_answer(desk: Link, reports: tuple[str, ...]) -> dict[str, Any] | None:
    answers = (_answer(desk, each) for each in reports)
    return next((each for each in answers if each), None)


def _answer(desk: Link, report: str) -> dict[str, Any] | None:
    """What the desk says of a report; None when it is in no release."""
    answer = desk.ask("GET", f"/classes/{report}")
    if answer.status == _NONE and answer.problem.title == LedgerError.code:
        return None
    if answer.status != _OK:
        raise TransportError(
            f"The release desk answered {answer.status}.",
            remedy="Its operator starts it with penrose release serve --classes.",
        )
    try:
        return msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise TransportError(f"The answer is none: {error}.", remedy="Ask the desk's operator.") from error


def _write(path: Path, receipt: Receipt) -> None:
    """For its owner only: whoever has the ids can ask as well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, msgspec.json.format(msgspec.json.encode(receipt)) + b"\n")


def _read(path: Path) -> Receipt:
    from penrose_ray.actors.reference import Receipt  # noqa: PLC0415 - numpy

    try:
        return msgspec.json.decode(path.read_bytes(), type=Receipt)
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} is no receipt: {error}.", remedy="Give the file that penrose label run wrote."
        ) from error
