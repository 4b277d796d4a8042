"""`penrose plan`: hours, machines, money, and which part breaks first, before anyone deploys."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penrose_ray.cli.output import Format, FormatOption, print_rows, say
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from penrose_ray.sim.planner import Plan

_COLUMNS = ("part", "need", "unit", "units", "of", "breaks_at_gpus", "limit")


def plan(
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs of the fleet.")],
    apps: Annotated[int, typer.Option("--apps", help="Applications that they run.")],
    load: Annotated[float, typer.Option("--load", help="Share of time that a GPU is busy.")] = 0.1,
    counter_groups: Annotated[int, typer.Option("--counter-groups", help="Counter groups in turn.")] = 1,
    gpu_models: Annotated[int, typer.Option("--gpu-models", help="GPU models of the fleet.")] = 1,
    costs: Annotated[
        Path | None, typer.Option("--costs", help="Folder with the benchmarks' JSON; out/bench by default.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say what a collection takes: hours to coverage, cores, disks, circuits, and what breaks first.

    Example: penrose plan --gpus 10_000_000 --apps 20_000
    """
    from penrose_ray.sim import planner  # noqa: PLC0415 - pandas
    from penrose_ray.sim.costs import measured_costs  # noqa: PLC0415 - as above

    if costs is not None and not costs.is_dir():
        raise ConfigError(f"--costs {costs} is no folder.", remedy="Give the folder that make bench fills.")
    unit_costs, found = measured_costs(costs or Path("out/bench"))
    say(f"unit costs measured here: {', '.join(found) or 'none'}; others are the built-in ones")
    demand = planner.Demand(
        gpus=gpus, apps=apps, load=load, counter_groups=counter_groups, gpu_models=gpu_models
    )
    result = planner.plan(demand, unit_costs)
    rows = [{**asdict(part), "breaks_at_gpus": _finite(part.breaks_at_gpus)} for part in result.parts]
    if form is Format.JSON:
        known = {"gpus": gpus, "apps": apps, **_summary(result), "parts": rows}
        print(json.dumps({**known, "unit_costs": asdict(unit_costs), "measured": found}, indent=2))
        return
    shown = [{**row, "breaks_at_gpus": row["breaks_at_gpus"] or "-"} for row in rows]
    print_rows(shown, _COLUMNS, form, f"{gpus:,} GPUs, {apps:,} applications")
    if form is Format.TABLE:
        _print_summary(result, gpus)


def _summary(result: Plan) -> dict[str, object]:
    first = result.breaks_first
    return {
        "hours": {mix: _finite(value) for mix, value in result.hours.items()},
        "reports_per_s": result.reports_per_s,
        "peak_reports_per_s": result.peak_reports_per_s,
        "peak_clients_per_s": result.peak_clients_per_s,
        "reports_per_pair": result.reports_per_pair,
        "reports_needed": result.reports_needed,
        "gate_opens_at_gpus": result.gate_opens_at_gpus,
        "passes_with": list(result.passes_with),
        "nodes": result.nodes,
        "usd_per_year": result.usd_per_year,
        "breaks_first": {"part": first.part, "gpus": first.breaks_at_gpus, "limit": first.limit},
    }


def _finite(value: float) -> float | None:
    return None if math.isinf(value) else value


def _print_summary(result: Plan, gpus: int) -> None:
    hours = ", ".join(f"{value:.3g} h ({mix})" for mix, value in result.hours.items())
    print(f"99 % coverage after {hours}.")
    price = f"{result.usd_per_year:,.0f} USD a year"
    print(f"AS nodes: {result.nodes}, {price}.")
    print(
        f"Reports: {result.reports_per_s:,.0f}/s on average, {result.peak_reports_per_s:,.0f}/s at the peak "
        f"after a batch's end; {result.peak_clients_per_s:,.0f} clients/s ask the issuer after midnight UTC."
    )
    verdict = "pass" if result.reports_per_pair >= result.reports_needed else "are withheld"
    print(
        f"A class and counter group gets {result.reports_per_pair:,.0f} reports a batch and needs "
        f"{result.reports_needed:,}: its sums {verdict} "
        f"(they pass from {result.gate_opens_at_gpus:,.0f} GPUs on)."
    )
    if result.passes_with:
        print(f"Each of these alone would let them pass: {'; '.join(result.passes_with)}.")
    elif verdict != "pass":
        print("No single change of the task would: more GPUs, or fewer applications a task.")
    first = result.breaks_first
    state = "broken at this size" if first.breaks_at_gpus <= gpus else "holds at this size"
    print(f"First to break: {first.part}, at {first.breaks_at_gpus:,.0f} GPUs ({first.limit}); {state}.")
