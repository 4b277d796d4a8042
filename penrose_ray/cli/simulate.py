"""`penrose simulate`: how many hours until a fleet has covered its applications."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penrose_ray.cli.output import Format, FormatOption, SetOption, print_rows, say

if TYPE_CHECKING:
    import pandas as pd

    from penrose_ray.sim.catalogue import Found
    from penrose_ray.sim.settings import SimulationSettings

_TABLE = ("apps", "mix", "hours", "expected_hours", "published_hours", "ratio")
_GATE = ("mix", "change", "needed", "median_clients", "passed", "time_passed", "samples_released", "dropped")
_LEVELS = " ▁▂▃▄▅▆▇█"
_CURVE_COLUMNS = 60

OutOption = Annotated[
    Path | None, typer.Option("--out", help="Folder for the table and curves as CSV and Parquet.")
]


def simulate(
    config: Annotated[Path, typer.Argument(help="A configuration such as configs/coverage-paper.toml.")],
    overrides: SetOption = None,
    form: FormatOption = Format.TABLE,
    out: OutOption = None,
) -> None:
    """Simulate a fleet: hours to coverage, the gate, traffic, errors, the autoscaler.

    Example: penrose simulate configs/coverage-paper.toml --out out/coverage
    """
    from penrose_ray.sim.catalogue import run  # noqa: PLC0415 - pandas
    from penrose_ray.sim.settings import load_simulation  # noqa: PLC0415 - as above

    settings = load_simulation(config, overrides or ())
    say(f"{config}: {settings.experiment} in mode {settings.mode}, seed {settings.seed}")
    show(settings, run(settings, _step), form, out)


def show(settings: SimulationSettings, found: Found, form: Format, out: Path | None) -> None:
    """Print what an experiment found; with `out` also write table and curves there."""
    if out is not None:
        _write(out, found.table, found.curves)
    _print(settings, found, form)


def _step(text: str) -> None:
    say(f"  {text}")


def _print(settings: SimulationSettings, found: Found, form: Format) -> None:
    table, curves, notes = found
    rows = _rows(table)
    if form is Format.JSON:
        result: dict[str, object] = {
            "experiment": settings.experiment,
            "mode": settings.mode,
            "parameters": settings.model_dump(mode="json"),
            "table": rows,
            "notes": list(notes),
        }
        if curves is not None:
            result["curves"] = [
                {
                    "apps": apps,
                    "mix": mix,
                    "hours": part["hour"].tolist(),
                    "coverage": part["coverage"].tolist(),
                }
                for (apps, mix), part in curves.groupby(["apps", "mix"], sort=False)
            ]
        print(json.dumps(result, indent=2))
        return
    columns = _TABLE if curves is not None else tuple(str(name) for name in table.columns)
    if settings.experiment == "gate" and form is Format.TABLE:
        columns = _GATE
    print_rows(rows, columns, form, _title(settings))
    if form is Format.TABLE:
        if curves is not None:
            _print_curves(curves)
        for note in notes:
            print(note)


def _title(settings: SimulationSettings) -> str:
    if settings.experiment in ("coverage", "sweep"):
        return f"hours until {settings.target:.1%} of {settings.definition} are covered"
    return settings.experiment.replace("_", " ")


def _rows(table: pd.DataFrame) -> list[dict[str, object]]:
    """Rows with missing numbers as None, as JSON has no NaN."""
    plain = table.astype(object).where(table.notna(), None)
    return [{str(name): value for name, value in row.items()} for row in plain.to_dict("records")]


def _print_curves(curves: pd.DataFrame) -> None:
    import numpy as np  # noqa: PLC0415 - for tables only

    print("coverage, 0 to 100 %, over time")
    for (apps, mix), part in curves.groupby(["apps", "mix"], sort=False):
        hours = part["hour"].to_numpy()
        shown = np.interp(np.linspace(0, hours[-1], _CURVE_COLUMNS), hours, part["coverage"].to_numpy())
        bars = "".join(_LEVELS[int(value * (len(_LEVELS) - 1))] for value in shown)
        print(f"  {apps:>5,} {mix:<8} 0 h {bars} {hours[-1]:.1f} h")


def _write(out: Path, table: pd.DataFrame, curves: pd.DataFrame | None) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name, frame in (("table", table), ("curves", curves)):
        if frame is not None:
            frame.to_csv(out / f"{name}.csv", index=False)
            frame.to_parquet(out / f"{name}.parquet", index=False)
            say(f"{out / name}.csv and .parquet written")
