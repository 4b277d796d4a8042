"""Profilers' CSV tables: preambles, wrong widths, odd numbers."""

from __future__ import annotations

import csv
import io
import math
import zlib
from typing import TYPE_CHECKING

from penrose_ray.capture.files import plain
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from penrose_ray.capture.tally import Tally

Row = dict[str, str]


class _Lines:
    """Lines of a text, of which the last one is remembered."""

    def __init__(self, text: Iterable[str]) -> None:
        self._text = text
        self.last = "\n"

    def __iter__(self) -> Iterator[str]:
        for line in self._text:
            self.last = line
            yield line


def rows_of(path: Path, required: AbstractSet[str], tally: Tally) -> Iterator[Row]:
    """Rows below the first line that names all `required` columns; what comes before is a preamble.

    A row of another width than the header cannot be aligned with it: it is counted as damaged and left out.

    Raises:
        TraceError: no such header, or every row has another width.
    """
    with plain(path) as binary:
        text = _Lines(io.TextIOWrapper(binary, encoding="utf-8", errors="replace", newline=""))
        lines = csv.reader(text)
        header: list[str] | None = None
        good = bad = 0
        for cells in _unbroken(lines, tally):
            if header is None:
                header = cells if required <= set(cells) else None
            elif len(cells) == len(header):
                good += 1
                yield dict(zip(header, cells, strict=True))
            elif cells and any(cells):
                bad += 1
    if header is None:
        raise TraceError(
            f"{path} has no header with the columns {sorted(required)}.", remedy="Export the table once more."
        )
    if not text.last.endswith(("\n", "\r")):
        tally.warn("The last row has no end of line: it may be cut off.")
    _account(path, good, bad, len(header), tally)


def _account(path: Path, good: int, bad: int, width: int, tally: Tally) -> None:
    if bad and not good:
        raise TraceError(
            f"{path}: no row has the {width} columns of the header.",
            remedy="Export it with a profiler version that writes header and rows alike.",
        )
    if bad:
        tally.damaged += bad
        tally.warn(f"{bad} rows have another width than the header and are left out.")


def _unbroken(lines: Iterator[list[str]], tally: Tally) -> Iterator[list[str]]:
    while True:
        try:
            yield next(lines)
        except StopIteration:
            return
        except csv.Error as error:
            tally.damaged += 1
            tally.warn(f"A row is no CSV: {error}.")
        except (EOFError, OSError, zlib.error) as error:
            tally.warn(f"The compressed file is cut off or damaged: {error}.")
            return


def number(text: str) -> float:
    """A measured number, thousands separators allowed; NaN for an empty cell, N/A and any other text."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return math.nan
    return value if math.isfinite(value) else math.nan


def integer(text: str) -> int:
    """A whole number, in hexadecimal too; 0 where there is none."""
    try:
        return int(text, 0) if text[:2].lower() == "0x" else int(text)
    except ValueError:
        value = number(text)
        return 0 if math.isnan(value) else int(value)


def timestamp(text: str) -> int:
    """Nanoseconds; -1 (impossible) for text that has lost digits, as `8.1097E+14` has; 0 for no text."""
    text = text.strip()
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        whole, _, fraction = text.partition(".")
        return int(whole) if whole.isdigit() and not fraction.strip("0") else -1
