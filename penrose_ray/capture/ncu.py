"""NVIDIA Nsight Compute's `--csv` output, wide (`--page raw`) and long (`--page details`)."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.csv_file import Row, integer, number, rows_of
from penrose_ray.capture.recording import Launch, LaunchRows, Recording, assemble
from penrose_ray.capture.tally import Tally
from penrose_ray.histogram import Counter

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = "ncu-csv"
REQUIRED = frozenset({"ID", "Kernel Name"})
_LONG = "Metric Name"
_NO_METRICS = frozenset(
    {
        "ID",
        "Process ID",
        "Process Name",
        "Host Name",
        "Kernel Name",
        "Kernel Time",
        "Context",
        "Stream",
        "Block Size",
        "Grid Size",
        "Device",
        "CC",
        "Section Name",
        "Metric Name",
        "Metric Unit",
        "Metric Value",
        "Rule Name",
        "Rule Type",
        "Rule Description",
        "Estimated Speedup Type",
        "Estimated Speedup",
        "Invocations",
    }
)
_NO_METRIC_PREFIXES = (
    "device__attribute",
    "launch__",
    "profiler__",
    "thread Domain",
    "smsp__pcsamp",
    "numa__",
)
_DURATIONS = ("gpu__time_duration.sum", "gpu__time_duration_measured_user.sum", "Duration")
_SCALES = {
    "second": ("ns", 1e9),
    "s": ("ns", 1e9),
    "msecond": ("ns", 1e6),
    "ms": ("ns", 1e6),
    "usecond": ("ns", 1e3),
    "us": ("ns", 1e3),
    "nsecond": ("ns", 1.0),
    "ns": ("ns", 1.0),
    "Kbyte": ("byte", 1e3),
    "Mbyte": ("byte", 1e6),
    "Gbyte": ("byte", 1e9),
    "Tbyte": ("byte", 1e12),
    "hz": ("hz", 1.0),
    "Khz": ("hz", 1e3),
    "Mhz": ("hz", 1e6),
    "Ghz": ("hz", 1e9),
    "cycle/second": ("hz", 1.0),
    "cycle/usecond": ("hz", 1e6),
    "cycle/nsecond": ("hz", 1e9),
    "Kbyte/second": ("byte/s", 1e3),
    "Mbyte/second": ("byte/s", 1e6),
    "Gbyte/second": ("byte/s", 1e9),
    "Tbyte/second": ("byte/s", 1e12),
    "byte/second": ("byte/s", 1.0),
    "Kbyte/s": ("byte/s", 1e3),
    "Mbyte/s": ("byte/s", 1e6),
    "Gbyte/s": ("byte/s", 1e9),
    "Tbyte/s": ("byte/s", 1e12),
    "byte/s": ("byte/s", 1.0),
}
_MODEL = "device__attribute_display_name"


class _Table:
    """Metrics by launch: the first value of a (launch, metric) pair counts, another pass adds nothing."""

    def __init__(self, tally: Tally) -> None:
        self.rows = LaunchRows()
        self.values: dict[Counter, dict[int, float]] = {}
        self._index: dict[tuple[str, str], int] = {}
        self._tally = tally

    def launch(self, row: Row) -> int:
        """Index of the row's launch, a new one when its id is new."""
        key = (row.get("Process ID", ""), row["ID"])
        known = self._index.setdefault(key, len(self._index))
        if known == len(self.rows):
            self.rows.add(
                Launch(
                    name=row["Kernel Name"],
                    device=integer(row.get("Device", "")),
                    model=row.get(_MODEL, ""),
                    context=integer(row.get("Context", "")),
                    stream=integer(row.get("Stream", "")),
                    correlation=known + 1,
                    grid=_sizes(row.get("Grid Size", "")),
                    block=_sizes(row.get("Block Size", "")),
                )
            )
        return known

    def measure(self, launch: int, name: str, unit: str, text: str) -> None:
        """Note a metric's value in the unit that all scales of it share."""
        value = number(text)
        if math.isnan(value):
            return
        base, factor = _SCALES.get(unit.strip(), (unit.strip(), 1.0))
        name, base = ("duration", "ns") if name in _DURATIONS and base == "ns" else (name, base)
        cells = self.values.setdefault(Counter(name, base, "ncu", "nvidia"), {})
        if launch in cells:
            self._tally.duplicates += 1
        else:
            cells[launch] = value * factor


def read_ncu(path: Path) -> Recording:
    """Launches with every numeric metric as a counter, in the order in which they were profiled.

    Raises:
        TraceError: no NCU header, or no row fits it.
    """
    tally = Tally()
    table = _Table(tally)
    units: Row = {}
    for row in rows_of(path, REQUIRED, tally):
        if _LONG in row:
            launch = table.launch(row)
            table.measure(launch, row[_LONG], row.get("Metric Unit", ""), row.get("Metric Value", ""))
        elif not row["ID"].strip():
            units = row
        else:
            _measure_wide(table, row, units)
    return _finish(table, tally)


def _measure_wide(table: _Table, row: Row, units: Row) -> None:
    launch = table.launch(row)
    for name, text in row.items():
        if name not in _NO_METRICS and not name.startswith(_NO_METRIC_PREFIXES) and "." in name:
            table.measure(launch, name, units.get(name, ""), text)


def _finish(table: _Table, tally: Tally) -> Recording:
    count = len(table.rows)
    duration = Counter("duration", "ns", "ncu", "nvidia")
    measured = {counter: np.full(count, np.nan) for counter in (duration, *table.values)}
    for counter, cells in table.values.items():
        measured[counter][list(cells)] = list(cells.values())
    if tally.duplicates:
        tally.warn(
            f"{tally.duplicates} values come from further passes over a launch and are not added to it."
        )
    return assemble(
        FORMAT,
        table.rows.columns(),
        names=table.rows.names,
        devices=table.rows.devices,
        duration=duration,
        tally=tally,
        measured=measured,
        in_order=True,
    )


def _sizes(text: str) -> tuple[int, int, int]:
    found = [int(digits) for digits in re.findall(r"\d+", text)]
    x, y, z = [*(found or (0, 0, 0)), 1, 1, 1][:3]
    return x, y, z
