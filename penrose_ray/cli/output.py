"""Results on stdout as table, JSON or CSV; everything else on stderr."""

from __future__ import annotations

import csv
import json
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


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
    from rich.table import Table  # noqa: PLC0415

    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        numeric = all(isinstance(row[column], int | float) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric and rows else "left")
    for row in rows:
        table.add_row(*(escape(_text(row[column])) for column in columns))
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"  # noqa: PLR2004 - readable numbers
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
