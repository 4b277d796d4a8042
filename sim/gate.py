"""What the gate lets through: coverage that a design server may see, and who hides among whom.

Sampling covers positions; but a sum is opened only when enough clients reported its class and counter group
in one batch. A fleet that spreads over many classes and counter groups covers everything and releases little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penrose_ray.release.gate import least_passing
from penrose_ray.sim.engine import simulate_clients
from penrose_ray.sim.settings import SimulationSettings, scenario_of
from penrose_ray.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    from penrose_ray.sim.fill import Sent
    from penrose_ray.sim.settings import ReportingSettings

    Progress = Callable[[str], object]
_ONLY_THE_GATE = {"min_contributors", "hostile_clients"}


@dataclass(frozen=True, slots=True)
class Release:
    """One batch of a fleet at the gate."""

    needed: int
    """Reports, cover included, that a (class, counter group) needs."""
    pairs: int
    """(class, counter group) pairs."""
    passed_share: float
    """Share of pairs whose sum may be opened."""
    time_share: float
    """Share of the fleet's GPU time whose pairs may be opened."""
    samples_share: float
    """Share of all samples taken that are in an opened sum."""
    covered_share: float
    """Covered positions in opened sums, mean over applications."""
    contributors: tuple[int, int, int]
    """Anonymity set: fewest, median and most clients of a pair."""
    reports: int
    """Real reports of the whole fleet."""
    dropped_share: float
    """Share of samples lost to min_samples, r and tokens."""


def rules_of(settings: ReportingSettings) -> Task:
    """A task that carries the gate's parameters and nothing else."""
    return Task(
        name="simulated",
        demo=False,
        public_key=b"",
        counter_sets=(),
        rotation=(),
        reports_per_class=settings.reports_per_class,
        min_contributors=settings.min_contributors,
        tokens_per_day=settings.tokens_per_day,
        hostile_clients=settings.hostile_clients,
        cover_rate=settings.cover_rate,
        batch_s=max(1, round(settings.batch_s)),
    )


def release_of(
    sent: Sent, rules: ReportingSettings, covered: NDArray[np.float64], time_share: NDArray[np.float64]
) -> Release:
    """Judge one batch.

    Args:
        sent: what the fleet sent.
        rules: of the task.
        covered: covered share of each application's cells.
        time_share: each application's share of GPU time.
    """
    needed = least_passing(rules_of(rules))
    arrived = sent.reports / (1 - rules.cover_rate)  # cover reports come on top, drawn from the same classes
    passed = arrived >= needed
    by_app = passed.mean(axis=1)
    samples = sent.samples_by_pair[passed].sum() / max(1, sent.taken)
    fewest, median, most = np.percentile(sent.clients, [0, 50, 100])
    return Release(
        needed=needed,
        pairs=passed.size,
        passed_share=float(passed.mean()),
        time_share=float(by_app @ time_share),
        samples_share=float(samples),
        covered_share=float((covered * by_app).mean()),
        contributors=(int(fewest), int(median), int(most)),
        reports=int(sent.reports.sum()),
        dropped_share=sent.dropped / max(1, sent.taken),
    )


def gate_outlook(
    settings: SimulationSettings,
    changes: Iterable[Mapping[str, float]] = ({},),
    progress: Progress | None = None,
) -> pd.DataFrame:
    """The first batch of a fleet at the gate, for the settings as they are and with each change.

    Args:
        settings: one row for each number of applications, mix and change.
        changes: replaced fields of `reporting`, and `clients` or `counter_groups`.
        progress: told of each row.
    """
    rows = []
    for apps in settings.apps:
        for mix in settings.mixes:
            drawn: dict[str, tuple[Sent, NDArray[np.float64]]] = {}
            for change in changes:
                changed = _changed(settings, change)
                key = repr({name: change[name] for name in sorted(set(change) - _ONLY_THE_GATE)})
                if key not in drawn:
                    drawn[key] = _first_batch(changed, apps, mix)
                sent, covered = drawn[key]
                share = scenario_of(changed, apps, mix).share
                row = _row(apps, mix, change, release_of(sent, changed.reporting, covered, share))
                rows.append(row)
                if progress:
                    progress(
                        f"{apps:,} applications, {mix}, {row['change']}: {row['passed']:.1%} of pairs pass"
                    )
    return pd.DataFrame(rows)


def _first_batch(settings: SimulationSettings, apps: int, mix: str) -> tuple[Sent, NDArray[np.float64]]:
    outcome = simulate_clients(
        scenario_of(settings, apps, mix),
        hours=settings.reporting.batch_s / 3600,
        seed=settings.seed,
        reporting=settings.reporting.reporting(),
        batch_s=settings.reporting.batch_s,
    )
    return outcome.batches[0], outcome.curve.by_app


def _changed(settings: SimulationSettings, change: Mapping[str, float]) -> SimulationSettings:
    tree = settings.model_dump()
    for name, value in change.items():
        home = {"clients": "fleet", "load": "fleet", "dwell_s": "fleet", "counter_groups": "sampling"}
        tree[home.get(name, "reporting")][name] = value
    return SimulationSettings.model_validate(tree)


def _row(apps: int, mix: str, change: Mapping[str, float], release: Release) -> dict[str, object]:
    fewest, median, most = release.contributors
    return {
        "apps": apps,
        "mix": mix,
        "change": ", ".join(f"{name} {value:g}" for name, value in change.items()) or "as configured",
        "pairs": release.pairs,
        "needed": release.needed,
        "passed": release.passed_share,
        "time_passed": release.time_share,
        "samples_released": release.samples_share,
        "coverage_released": release.covered_share,
        "fewest_clients": fewest,
        "median_clients": median,
        "most_clients": most,
        "reports": release.reports,
        "dropped": release.dropped_share,
    }
