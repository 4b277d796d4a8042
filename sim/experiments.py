"""Experiments as functions: settings in, DataFrame out. Notebooks and the command line call the same ones.

settings = load_simulation(Path("configs/coverage-paper.toml"))
table, curves = coverage_table(settings)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from penrose_ray.errors import ConfigError
from penrose_ray.sim import published
from penrose_ray.sim.engine import simulate
from penrose_ray.sim.expectation import expected_hours
from penrose_ray.sim.settings import SimulationSettings, check, scenario_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penrose_ray.sim.coverage import Curve
    from penrose_ray.sim.scenario import Scenario

    Progress = Callable[[str], object]

_MARGIN = 1.3
"""A simulation runs that much longer than the expected time to the target."""


class CoverageTable(NamedTuple):
    """Hours to the target, and the way there."""

    table: pd.DataFrame
    """apps, mix, hours, expected_hours, published_hours, ratio, note."""
    curves: pd.DataFrame
    """apps, mix, hour, coverage."""


def coverage_table(settings: SimulationSettings, progress: Progress | None = None) -> CoverageTable:
    """Hours to coverage for every number of applications and mix, beside the published ones."""
    rows, curves = [], []
    for apps in settings.apps:
        for mix in settings.mixes:
            scenario = scenario_of(settings, apps, mix)
            curve = curve_of(settings, scenario)
            hours = curve.hours_to(settings.target)
            known = published.HOURS.get((apps, mix), math.nan)
            rows.append(
                {
                    "apps": apps,
                    "mix": mix,
                    "hours": hours,
                    "expected_hours": expected_hours(scenario, settings.target, settings.definition),
                    "published_hours": known,
                    "ratio": hours / known,
                    "note": published.note(apps, mix),
                }
            )
            curves.append(
                pd.DataFrame({"apps": apps, "mix": mix, "hour": curve.hours, "coverage": curve.coverage})
            )
            if progress:
                progress(f"{apps:,} applications, {mix}: {hours:.2f} h to {settings.target:.1%}")
    return CoverageTable(pd.DataFrame(rows), pd.concat(curves, ignore_index=True))


def curve_of(settings: SimulationSettings, scenario: Scenario) -> Curve:
    """One curve, long enough to reach the target unless `hours` says otherwise."""
    hours = settings.hours or expected_hours(scenario, settings.target, settings.definition) * _MARGIN
    if math.isinf(hours):
        raise ConfigError(
            "The target is never reached: an application has no share of the fleet's time.",
            remedy="Give every group a share, or set hours.",
        )
    return simulate(
        scenario,
        settings.mode,
        hours=hours,
        definition=settings.definition,
        seed=settings.seed,
        steps=settings.steps,
    )


def coverage_against(
    settings: SimulationSettings,
    parameter: str,
    values: Sequence[float | str],
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Hours to the target while one setting varies.

    Args:
        settings: all that stays fixed.
        parameter: dotted, such as `fleet.clients`, `sampling.interval`, `sampling.reset_s`,
            `sampling.counter_groups`, `fleet.load`; `apps` or `mix` for one of these.
        values: what it takes.
        progress: told of each row.

    Returns:
        parameter, value, apps, mix, hours, expected_hours; one row each.
    """
    rows = []
    for value in values:
        changed = changed_settings(settings, parameter, value)
        for apps in changed.apps:
            for mix in changed.mixes:
                scenario = scenario_of(changed, apps, mix)
                hours = curve_of(changed, scenario).hours_to(changed.target)
                wanted = expected_hours(scenario, changed.target, changed.definition)
                row = {"parameter": parameter, "value": value, "apps": apps, "mix": mix}
                rows.append({**row, "hours": hours, "expected_hours": wanted})
                if progress:
                    progress(f"{parameter} = {value}, {apps:,} applications, {mix}: {hours:.2f} h")
    return pd.DataFrame(rows)


def changed_settings(settings: SimulationSettings, parameter: str, value: float | str) -> SimulationSettings:
    """The settings with one value replaced.

    Raises:
        ConfigError: no such setting, or a value that it cannot take.
    """
    if parameter == "mix":
        if value not in settings.mixes:
            raise ConfigError(f"mix: there is none {value!r}.", remedy="Use a name of [mixes].")
        changed = settings.model_copy(update={"mixes": {str(value): settings.mixes[str(value)]}})
        check(changed)
        return changed
    tree = settings.model_dump()
    *way, last = parameter.split(".")
    table: object = tree
    for part in way:
        table = table.get(part) if isinstance(table, dict) else None
    if not isinstance(table, dict) or last not in table:
        raise ConfigError(
            f"sweep.parameter: there is no setting {parameter!r}.", remedy="Name one, such as fleet.clients."
        )
    table[last] = (int(value),) if parameter == "apps" else value
    try:
        changed = SimulationSettings.model_validate(tree)
    except ValueError as error:  # pydantic's ValidationError is one
        raise ConfigError(f"sweep.values: {parameter} cannot be {value!r}.", remedy=str(error)) from error
    check(changed)
    return changed
