"""`penrose release`: what was handed over, proofs for clients, and the gatekeeper's part."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from penrose_ray.cli.control import LONG_S, request
from penrose_ray.cli.given import (
    AuthoritiesOption,
    PlainOption,
    SocksOption,
    content_of,
    hexadecimal,
    link_settings,
    refuse_design_key,
)
from penrose_ray.cli.keys import HsmOption, load_keys
from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows, say
from penrose_ray.cli.passphrase import VariableOption
from penrose_ray.cli.serving import CertificateOption, HostOption, KeyOption, PortOption, run_server
from penrose_ray.errors import ConfigError
from penrose_ray.release.published import Published
from penrose_ray.settings import load_settings
from penrose_ray.task import Task, read_task
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from penrose_ray.opening import Decryptor

app = typer.Typer(no_args_is_help=True, help="Look at releases, prove that a report is in one.")
TaskArgument = Annotated[Path, typer.Argument(help="The signed task.")]
DirectoryArgument = Annotated[Path, typer.Argument(help="The directory of releases.")]
ConfigArgument = Annotated[Path, typer.Argument(help="The service's configuration.")]
BatchOption = Annotated[int, typer.Option("--batch", help="Number of the batch.")]
_COLUMNS = ("batch", "sums", "reports", "withheld_sums", "epsilon")
_RELEASE_FIRST = "Release something first."
_OPENED = Path("opened")


@app.command("list")
def releases(task: TaskArgument, directory: DirectoryArgument, form: FormatOption = Format.TABLE) -> None:
    """Print the releases of a task as its ledger has them, and the ledger's key.

    Example: penrose release list fleet.task out/releases
    """
    entries = _published(task, directory).entries()
    rows = [
        {
            "batch": each.facts.batch,
            "sums": each.facts.sums,
            "reports": each.facts.reports,
            "withheld_sums": each.facts.withheld_sums,
            "epsilon": each.facts.spent_epsilon,
        }
        for each in entries
        if each.facts.kind == "release"
    ]
    title = f"ledger signed by {entries[0].signer.hex()}" if entries else "there is no ledger yet"
    print_rows(rows, _COLUMNS, form, title)
    if not rows:
        say(f"nothing of this task is released yet in {directory}")


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

    Example: penrose release approve fleet.task out/releases --batch 7 --gatekeeper https://HOST:8473 --out P
    """
    from penrose_ray.actors.approvals import ask_gatekeeper, gatekeeper_at  # noqa: PLC0415 - only here

    settings = link_settings(gatekeeper, authorities, allow_plain_http=allow_plain_http, socks=socks)
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
def open_release(  # noqa: PLR0913, PLR0917 - each argument is an option of the command
    place: Annotated[
        Path,
        typer.Argument(help="The service's configuration; with --keys a directory of hand-overs, or one."),
    ],
    overrides: SetOption = None,
    form: FormatOption = Format.TABLE,
    keys: Annotated[
        Path | None, typer.Option("--keys", help="On the design server's own machine: its key file.")
    ] = None,
    task: Annotated[Path | None, typer.Option("--task", help="With --keys: the signed task.")] = None,
    signer: Annotated[
        str, typer.Option("--ledger-signer", help="With --keys: the ledger's key; penrose up prints it.")
    ] = "",
    out: Annotated[
        Path, typer.Option("--out", help="With --keys: directory for Parquet files and notes.")
    ] = _OPENED,
    passphrase_variable: VariableOption = "",
    hsm: HsmOption = "",
) -> None:
    """Open what is released and not opened yet, a Parquet file a batch.

    Example: penrose release open releases --keys design_server.key --task fleet.task --ledger-signer HEX

    With a configuration the design server that runs with the service opens; gatekeepers of a split key are
    asked first. With --keys this command is the design server, on a machine of its own: copy the service's
    directory of releases there. What does not agree with its ledger, or was opened before, is refused.
    """
    if keys is None and (task or signer):
        raise ConfigError(
            "--task and --ledger-signer would not be used without --keys.",
            remedy="Give --keys, or the service's configuration alone.",
        )
    if keys is None:
        settings, _ = load_settings(place, tuple(overrides or ()))
        if not settings.design_server.is_here:
            raise ConfigError(
                f"The service of {place} has no design server.",
                remedy="Open its releases on the design server's own machine: penrose release open --keys.",
            )
        rows = request(settings.service.state_dir, "open", timeout_s=LONG_S)
    elif task is None or not signer:
        raise ConfigError("--keys needs --task and --ledger-signer.", remedy="Give all three.")
    else:
        pinned = hexadecimal("--ledger-signer", signer, source="penrose up's first lines")
        secrets = load_keys(keys, passphrase_variable, hsm)
        own = secrets.signing.public_key().public_bytes_raw()
        refuse_design_key(pinned, own)
        trusted = read_task(task, trusted_signer=own)
        rows = _open_apart(place, trusted, secrets.paillier, pinned, out)
    print_rows(rows, ("path", "histograms", "reports", "discarded"), form, "opened")


def _open_apart(
    place: Path, task: Task, decryptor: Decryptor, ledger_signer: bytes, out: Path
) -> list[dict[str, object]]:
    from penrose_ray.actors.opened import Opener  # noqa: PLC0415 - only here

    with contextlib.closing(Opener(task, decryptor, ledger_signer, out)) as opener:
        return [each.row() for each in opener.open(place)]


@app.command("combine")
def combine(
    task: TaskArgument,
    handover: Annotated[Path, typer.Argument(help="The hand-over.")],
    share: Annotated[Path, typer.Option("--share", help="The design server's key share.")],
    partials: Annotated[list[Path], typer.Option("--partials", help="A gatekeeper's answer; repeatable.")],
    out: Annotated[Path, typer.Option("--out", help="The Parquet file to write.")],
    form: FormatOption = Format.TABLE,
    passphrase_variable: VariableOption = "",
) -> None:
    """Open a hand-over of a split key with this party's share and the gatekeepers' answers.

    Example: penrose release combine fleet.task T-7.handover --share share-1.key --partials P --out r.parquet
    """
    from penrose_ray.actors.design_server import open_with_share  # noqa: PLC0415 - only here

    answers = [content_of(each, ConfigError, remedy=_RELEASE_FIRST) for each in partials]
    opened = open_with_share(
        share,
        passphrase_variable,
        read_task(task),
        content_of(handover, ConfigError, remedy=_RELEASE_FIRST),
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
    return Published(directory, read_task(task))
