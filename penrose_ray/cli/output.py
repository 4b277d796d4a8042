"""Results on stdout as table, JSON or CSV; everything else on stderr."""

from __future__ import annotations

import csv
import json
import re
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_WIDTH: Final = 140
_WIDEST: Final = 10_000
_HASH: Final = re.compile(r"\b[0-9a-f]{32,}\b")
"""Keys, ids and hashes: they are copied whole, so they are never cut or broken."""


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print the result.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="A.B=VALUE", help="Change a setting of the configuration; may be repeated."
    ),
]


def say(text: str) -> None:
    """A line for the person, on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_rows(
    rows: Sequence[Mapping[str, object]], columns: Sequence[str], form: Format, title: str
) -> None:
    """Print rows; `columns` choose and order the keys in tables and CSV, JSON holds all of them."""
    if form is Format.JSON:
        print(json.dumps(list(rows), indent=2, default=str))
    elif form is Format.CSV:
        writer = csv.DictWriter(sys.stdout, columns, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    else:
        _print_table(rows, columns, title)


def _print_table(rows: Sequence[Mapping[str, object]], columns: Sequence[str], title: str) -> None:
    from rich import box  # noqa: PLC0415 - 50 ms that JSON and CSV do not need
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.measure import Measurement  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(box=box.SIMPLE_HEAD)
    for column in columns:
        numeric = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(
            column.replace("_", " "),
            justify="right" if numeric and rows else "left",
            no_wrap=any(_HASH.search(str(row[column])) for row in rows),
        )
    for row in rows:
        table.add_row(*(escape(_text(row[column])) for column in columns))
    console.print(escape(title), style="italic", soft_wrap=True)
    needed = Measurement.get(console, console.options.update(max_width=_WIDEST), table).minimum
    console.width = max(console.width, needed)
    console.print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"  # noqa: PLR2004 - readable numbers
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
