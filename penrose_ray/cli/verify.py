"""`penrose verify`: check a ledger, and that a report of one's own is in it. No key is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from penrose_ray.cli.given import LedgerSignerOption, content_of, hexadecimal
from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.errors import ConfigError, LedgerError, naming
from penrose_ray.release.ledger import LedgerEntry, check_chain, read_lines
from penrose_ray.release.published import Inclusion
from penrose_ray.types import ReportId

_COLUMNS = ("entry", "kind", "batch", "sums", "reports", "withheld", "sigma", "epsilon", "drop_rate", "hash")


def verify(
    ledger: Annotated[Path, typer.Argument(help="A ledger.")],
    signer: LedgerSignerOption = "",
    head: Annotated[
        str, typer.Option("--head", help="A hash noted before: it must still be in the chain.")
    ] = "",
    report: Annotated[str, typer.Option("--report", help="A report id, hexadecimal.")] = "",
    proof: Annotated[Path | None, typer.Option("--proof", help="Its proof: penrose release prove.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Check every signature and link of a ledger, and print its entries; with --report, check its proof.

    Example: penrose verify TASK.ledger --ledger-signer 3f0c... --report 77ab... --proof proof.json

    Exit code 65 when anything is wrong.
    """
    if proof and not report:
        raise ConfigError("--proof would not be used: no report is named.", remedy="Name it with --report.")
    pinned = hexadecimal("--ledger-signer", signer) if signer else None
    raw = content_of(ledger, ConfigError)
    with naming(ledger):
        entries = check_chain(read_lines(raw), signer=pinned)
    if not entries:
        raise LedgerError(f"{ledger} has no entry.", remedy="Fetch the whole ledger.")
    if head and hexadecimal("--head", head) not in {entry.hash for entry in entries}:
        raise LedgerError(
            "The noted head is not in this ledger: it was cut or rewritten.", remedy="Keep both as evidence."
        )
    if report:
        _check_report(entries, hexadecimal("--report", report), proof)
        say(f"report {report[:16]} is in the ledger")
    print_rows([_row(entry) for entry in entries], _COLUMNS, form, f"signed by {entries[0].signer.hex()}")


def _check_report(entries: list[LedgerEntry], report_id: bytes, proof: Path | None) -> None:
    if proof is None:
        raise ConfigError("--report needs --proof.", remedy="Ask the service: penrose release prove.")
    try:
        inclusion = msgspec.json.decode(content_of(proof, ConfigError), type=Inclusion)
    except msgspec.MsgspecError as error:
        raise LedgerError(f"{proof} is no proof: {error}.", remedy="Ask for it again.") from error
    inclusion.check(ReportId(report_id), signer=entries[0].signer)
    if inclusion.line.check(entries[0].signer) not in entries:
        raise LedgerError(
            "The proof's entry is not in this ledger.", remedy="Fetch the ledger again; then keep both."
        )


def _row(entry: LedgerEntry) -> dict[str, object]:
    facts = entry.facts
    return {
        "entry": entry.index,
        "kind": facts.kind if not facts.reason else f"{facts.kind}: {facts.reason}",
        "batch": facts.batch,
        "sums": facts.sums,
        "reports": facts.reports,
        "withheld": facts.withheld_sums,
        "sigma": facts.noise_sigma,
        "epsilon": facts.spent_epsilon,
        "drop_rate": facts.drop_rate,
        "hash": entry.hash.hex(),
    }
