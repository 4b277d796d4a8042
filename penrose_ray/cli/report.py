"""`penrose report`: opened releases as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from penrose_ray.cli.given import LedgerSignerOption, content_of, hexadecimal
from penrose_ray.cli.output import say
from penrose_ray.errors import ConfigError, LedgerError, naming
from penrose_ray.release.ledger import check_chain, read_lines

if TYPE_CHECKING:
    from collections.abc import Collection

LabelsOption = Annotated[
    Path | None,
    typer.Option("--labels", help="Names of classes; labels.json beside the release by default."),
]


def report(
    releases: Annotated[
        list[Path], typer.Argument(metavar="RELEASE...", help="Opened releases of one task.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The HTML file to write.")],
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", help="The service's ledger: epsilon, coverage and what was withheld."),
    ] = None,
    signer: LedgerSignerOption = "",
    run: Annotated[
        Path | None, typer.Option("--run", help="run.json of the run that made the release.")
    ] = None,
    labels: LabelsOption = None,
) -> None:
    """Write figures, tables, method and privacy statement of opened releases as one HTML file.

    Example: penrose report releases/*.parquet -o report.html --ledger TASK.ledger
    """
    from penrose_ray.analyse.released import read_histograms  # noqa: PLC0415 - pandas
    from penrose_ray.analyse.report import write  # noqa: PLC0415 - matplotlib

    if signer and not ledger:
        raise ConfigError(
            "--ledger-signer would not be used: no ledger is named.", remedy="Name it with --ledger."
        )
    histograms = read_histograms(releases, batches="sum", labels=labels)
    known = _run(run) if run else {}
    if ledger:
        task_id = bytes.fromhex(histograms.facts["task_id"] or "")
        known |= of_ledger(ledger, signer, task_id, set(histograms.stored["batch"]))
    write(histograms, out, known)
    say(f"{out} written, {out.stat().st_size / 1e3:,.0f} KB")


def of_ledger(path: Path, signer: str, task_id: bytes, batches: Collection[int]) -> dict[str, Any]:
    """What a ledger says of these batches, after its signatures were checked.

    Returns:
        epsilon_spent, coverage (share of the reports that were handed over), withheld_sums, withheld_reports,
        drop_rate.

    Raises:
        LedgerError: it cannot be read, is wrong, or of another task.
    """
    pinned = hexadecimal("--ledger-signer", signer) if signer else None
    raw = content_of(path, ConfigError)
    with naming(path):
        entries = check_chain(read_lines(raw), signer=pinned)
    if entries and task_id and entries[0].task_id != task_id:
        raise LedgerError(f"{path} is the ledger of another task.", remedy="Give that of the release's task.")
    facts = [each.facts for each in entries if each.facts.kind == "release" and each.facts.batch in batches]
    missing = set(batches) - {each.batch for each in facts}
    if missing:
        raise LedgerError(
            f"{path} has no entry for batch {min(missing)}, which the release holds.",
            remedy="Fetch the whole ledger; then ask the operator.",
        )
    handed, withheld = sum(each.reports for each in facts), sum(each.withheld_reports for each in facts)
    return {
        "epsilon_spent": max((each.spent_epsilon for each in facts), default=0.0),
        "coverage": handed / (handed + withheld) if handed + withheld else None,
        "withheld_sums": sum(each.withheld_sums for each in facts),
        "withheld_reports": withheld,
        "drop_rate": max((each.drop_rate for each in facts), default=0.0),
    }


def _run(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} is not the summary of a run: {error}.", remedy="Give the run.json of penrose run."
        ) from error
