"""All experiments of a configuration behind one function."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from penrose_ray.accuracy import best_interval
from penrose_ray.sim.autoscaling import Day, simulate_day
from penrose_ray.sim.experiments import coverage_against, coverage_table
from penrose_ray.sim.gate import gate_outlook
from penrose_ray.sim.planner import Demand
from penrose_ray.sim.sampling_error import error_curve
from penrose_ray.sim.traffic import published_gap, traffic_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penrose_ray.sim.settings import SimulationSettings

    Progress = Callable[[str], object]

_BINS = 128
_VARIATIONS = (0.03, 0.1, 0.3)
_EXECUTIONS = (1e5, 1e6, 1e8, 1e9)


class Found(NamedTuple):
    """What an experiment found."""

    table: pd.DataFrame
    curves: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()


def run(settings: SimulationSettings, progress: Progress | None = None) -> Found:
    """Run the experiment that the settings name."""
    if settings.sweep is not None:
        sweep = settings.sweep
        return Found(coverage_against(settings, sweep.parameter, sweep.values, progress))
    match settings.experiment:
        case "gate":
            return Found(gate_outlook(settings, settings.changes, progress))
        case "traffic":
            return traffic(settings)
        case "sampling_error":
            return sampling_error(settings)
        case "autoscaler":
            return Found(autoscaler_hours(settings))
        case _:
            table, curves = coverage_table(settings, progress)
            notes = dict.fromkeys(f"2,000 applications: {text}." for text in table["note"] if text)
            return Found(table, curves, tuple(notes))


def traffic(settings: SimulationSettings) -> Found:
    """Messages, bytes, cores and dollars, and what the published traffic would need."""
    tables = []
    for apps in settings.apps:
        demand = Demand(
            gpus=settings.fleet.clients,
            apps=apps,
            load=settings.fleet.load,
            interval=settings.sampling.interval,
            counter_groups=settings.sampling.counter_groups,
            dwell_s=settings.fleet.dwell_s or settings.sampling.reset_s,
            rules=settings.reporting,
        )
        tables.append(traffic_table(demand).assign(apps=apps))
    gap = published_gap()
    note = (
        f"the published 0.12 GB/s of 100,000 GPUs is {gap.factor:.0f} times one 32 KB histogram a 3,000 s of "
        f"a busy GPU: one every {gap.seconds_between:.0f} s, or {gap.bytes_per_snippet:,.0f} bytes a snippet."
    )
    return Found(pd.concat(tables, ignore_index=True), notes=(note,))


def shapes() -> dict[str, NDArray[np.float64]]:
    """Masses of 128 bins of a few typical counters."""
    place = np.arange(_BINS)
    spikes = np.where(place % 13 == 0, 1.0, 0.0)
    made = {
        "10 spikes": spikes,
        "bell, sd 10": np.exp(-(((place - 64) / 10) ** 2) / 2),
        "falling": np.exp(-place / 20.0),
        "flat": np.ones(_BINS),
    }
    return {name: masses / masses.sum() for name, masses in made.items()}


def sampling_error(settings: SimulationSettings) -> Found:
    """Share of bins that are off by less than 1 %, by shape and samples; best intervals as notes."""
    tables = [
        error_curve(masses, settings.samples, seed=settings.seed).assign(shape=name)
        for name, masses in shapes().items()
    ]
    notes = tuple(
        f"counter varying by {variation:g}: "
        + ", ".join(
            f"S = {best_interval(count, variation):,.0f} at {count:,.0f} executions" for count in _EXECUTIONS
        )
        + "; below that, more sampling is worse data."
        for variation in _VARIATIONS
    )
    return Found(pd.concat(tables, ignore_index=True), notes=notes)


def autoscaler_hours(settings: SimulationSettings) -> pd.DataFrame:
    """The autoscaler's day, hour by hour.

    Returns:
        hour, arriving_per_s, fewest_shards, most_shards, busy, most_waiting, changes.
    """
    day = simulate_day(Day(**dict(settings.day)))
    by_hour = day.assign(hour=day["hour"].astype(int), changed=day["delta"] != 0).groupby("hour")
    return by_hour.agg(
        arriving_per_s=("arriving_per_s", "mean"),
        fewest_shards=("shards", "min"),
        most_shards=("shards", "max"),
        busy=("busy", "mean"),
        most_waiting=("waiting", "max"),
        changes=("changed", "sum"),
    ).reset_index()
