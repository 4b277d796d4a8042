"""`penrose release`: what was handed over, proofs for clients, and the gatekeeper's part."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penrose_ray.cli.control import LONG_S, request
from penrose_ray.cli.given import AuthoritiesOption, PlainOption, SocksOption, content_of, hexadecimal
from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows, say
from penrose_ray.cli.serving import CertificateOption, HostOption, KeyOption, PortOption, run_server
from penrose_ray.errors import ConfigError, LedgerError, TaskError
from penrose_ray.release.published import Published
from penrose_ray.settings import LinkSettings, load_settings
from penrose_ray.task import Task
from penrose_ray.task import verify as verify_task
from penrose_ray.types import BatchId

app = typer.Typer(no_args_is_help=True, help="Look at releases, prove that a report is in one.")
TaskArgument = Annotated[Path, typer.Argument(help="The signed task.")]
DirectoryArgument = Annotated[Path, typer.Argument(help="The directory of releases.")]
ConfigArgument = Annotated[Path, typer.Argument(help="The service's configuration.")]
BatchOption = Annotated[int, typer.Option("--batch", help="Number of the batch.")]
_COLUMNS = ("batch", "sums", "reports", "withheld_sums", "epsilon")
_RELEASE_FIRST = "Release something first."


@app.command("list")
def releases(task: TaskArgument, directory: DirectoryArgument, form: FormatOption = Format.TABLE) -> None:
    """Print the releases of a task as its ledger has them, and the ledger's key.

    Example: penrose release list fleet.task out/releases
    """
    published = _published(task, directory)
    rows = [
        {
            "batch": each.batch,
            "sums": each.sums,
            "reports": each.reports,
            "withheld_sums": each.withheld_sums,
            "epsilon": each.spent_epsilon,
        }
        for each in published.facts()
        if each.kind == "release"
    ]
    print_rows(rows, _COLUMNS, form, f"ledger signed by {published.signer.hex()}")


@app.command("prove")
def prove(
    task: TaskArgument,
    directory: DirectoryArgument,
    report: Annotated[str, typer.Argument(help="The report's id, hexadecimal.")],
) -> None:
    """Print the proof that a report is in a release, for penrose verify.

    Example: penrose release prove fleet.task out/releases 77ab... > proof.json
    """
    found = _published(task, directory).prove(hexadecimal("Report id", report))
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")


@app.command("serve")
def serve(
    task: TaskArgument,
    directory: DirectoryArgument,
    host: HostOption = "127.0.0.1",
    port: PortOption = 8472,
    certificate: CertificateOption = None,
    key: KeyOption = None,
    *,
    classes: Annotated[
        bool, typer.Option("--classes", help="Also tell senders the class of a released report.")
    ] = False,
) -> None:
    """Let clients read the ledger and ask for proofs over HTTP, until interrupted.

    Example: penrose release serve fleet.task out/releases --classes
    """
    from penrose_ray.actors.proofs import application  # noqa: PLC0415 - the server's libraries

    run_server(application(_published(task, directory), classes=classes), host, port, certificate, key)


@app.command("approve")
def approve(
    task: TaskArgument,
    directory: DirectoryArgument,
    batch: BatchOption,
    gatekeeper: Annotated[str, typer.Option("--gatekeeper", help="Its address, https://HOST:PORT.")],
    out: Annotated[Path, typer.Option("--out", help="Where its partial decryptions go.")],
    authorities: AuthoritiesOption = None,
    *,
    allow_plain_http: PlainOption = False,
    socks: SocksOption = "",
) -> None:
    """Ask a gatekeeper to decrypt its part of a released batch, for the design server.

    Example: penrose release approve fleet.task out/releases --batch 7 --gatekeeper https://HOST:8471 --out P
    """
    from penrose_ray.actors.approvals import ask_gatekeeper, gatekeeper_at  # noqa: PLC0415 - only here

    settings = LinkSettings(authorities=authorities, allow_plain_http=allow_plain_http, socks=socks)
    party = gatekeeper_at(gatekeeper, settings)
    out.write_bytes(ask_gatekeeper(party, _published(task, directory).request(BatchId(batch))))
    say(f"{out} written: give it to the design server with the hand-over")


@app.command("close")
def close(config: ConfigArgument, overrides: SetOption = None, form: FormatOption = Format.TABLE) -> None:
    """Let the service that runs here close the batches that are due and hand over what passes the gate.

    Example: penrose release close configs/fleet.toml

    With tokens a batch is due 36 h after its end, for reports may arrive so late; in a demo at once.
    """
    settings, _ = load_settings(config, tuple(overrides or ()))
    rows = request(settings.service.state_dir, "release", timeout_s=LONG_S)
    print_rows(rows, ("batch", "sums", "reports", "withheld_sums"), form, "handed over")


@app.command("open")
def open_release(
    config: ConfigArgument, overrides: SetOption = None, form: FormatOption = Format.TABLE
) -> None:
    """Let the design server that runs here open what is released and not opened yet, a Parquet file each.

    Example: penrose release open configs/fleet.toml

    With a split key the gatekeepers of design_server.gatekeepers are asked first; without them nothing opens.
    """
    settings, _ = load_settings(config, tuple(overrides or ()))
    rows = request(settings.service.state_dir, "open", timeout_s=LONG_S)
    print_rows(rows, ("path", "histograms", "reports", "discarded"), form, "opened")


@app.command("combine")
def combine(
    task: TaskArgument,
    handover: Annotated[Path, typer.Argument(help="The hand-over.")],
    share: Annotated[Path, typer.Option("--share", help="The design server's key share.")],
    partials: Annotated[list[Path], typer.Option("--partials", help="A gatekeeper's answer; repeatable.")],
    out: Annotated[Path, typer.Option("--out", help="The Parquet file to write.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Open a hand-over of a split key with this party's share and the gatekeepers' answers.

    Example: penrose release combine fleet.task T-7.handover --share share-1.key --partials P --out r.parquet
    """
    from penrose_ray.actors.design_server import open_with_share  # noqa: PLC0415 - only here

    answers = [content_of(each, LedgerError, remedy=_RELEASE_FIRST) for each in partials]
    opened = open_with_share(
        share,
        content_of(task, LedgerError, remedy=_RELEASE_FIRST),
        content_of(handover, LedgerError, remedy=_RELEASE_FIRST),
        answers,
        out,
    )
    row = {"histograms": opened.histograms, "reports": opened.reports, "discarded": len(opened.discarded)}
    print_rows([row], tuple(row), form, str(out))
    for each in opened.discarded:
        say(f"discarded: {each}")


def _published(task: Path, directory: Path) -> Published:
    if not directory.is_dir():
        raise ConfigError(f"There is no directory {directory}.", remedy="Give the directory of releases.")
    return Published(directory, _task(task))


def _task(path: Path) -> Task:
    return verify_task(content_of(path, TaskError))
