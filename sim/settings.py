"""Configurations of simulations: `penrose simulate FILE`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from penrose_ray.errors import ConfigError
from penrose_ray.settings import Section
from penrose_ray.sim.coverage import Definition
from penrose_ray.sim.engine import Mode
from penrose_ray.sim.fill import Reporting
from penrose_ray.sim.population import Mix, require_shares, time_shares
from penrose_ray.sim.recorded import from_traces
from penrose_ray.sim.scenario import LoadForm, Sampler, Sampling, Scenario
from penrose_ray.sim.workloads import Group, grouped, repeated
from penrose_ray.task import days_of_batch
from penrose_ray.toml_file import TomlFile, override_with, validated

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from penrose_ray.sim.workloads import Workload

MixName = str


class GroupSettings(Section):
    """Applications alike."""

    name: str
    """What the group is called in tables."""
    apps_share: float = Field(ge=0, le=1)
    """Share of all applications."""
    run_s: float = Field(gt=0, allow_inf_nan=False)
    """GPU seconds of one cycle."""
    launch_us: float = Field(default=30.0, gt=0, allow_inf_nan=False)
    """Mean duration of a launch."""
    spread: float = Field(default=0.0, ge=0, lt=1)
    """Cycles are spread evenly over run_s (1 - spread) to run_s (1 + spread)."""


class MixSettings(Section):
    """Who runs what."""

    group_shares: tuple[float, ...] = ()
    """Share of GPU time of each group; empty leaves applications equal."""
    zipf: float = Field(default=0.0, ge=0)
    """Inside a group the runs of the i-th application fall as i^-zipf."""


class WorkloadSettings(Section):
    """The applications."""

    groups: tuple[GroupSettings, ...] = ()
    """`[[workload.groups]]`: applications by kind."""
    traces: Literal["", "streams", "corpus"] = ""
    """Take cycles from the recordings below PENROSE_TRACES instead of from groups."""


class FleetSettings(Section):
    """The GPUs."""

    clients: int = Field(default=100_000, ge=1)
    """How many GPUs."""
    load: float = Field(default=0.1, gt=0, le=1)
    """Share of time that a GPU is busy."""
    load_form: LoadForm = "duty"
    """`duty`: busy for that share of each window; `on_off`: busy for whole windows."""
    dwell_s: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Session mode: seconds that a client stays with an application; 0 is one window."""


class SamplingSettings(Section):
    """How clients sample."""

    interval: float = Field(default=10_000, ge=1, allow_inf_nan=False)
    """S: one launch in S is sampled."""
    sampler: Sampler = "jitter"
    """`jitter` draws each gap anew; `stride` keeps S until the next offset."""
    reset_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    """O: seconds after which `stride` draws a new offset."""
    counter_groups: int = Field(default=1, ge=1)
    """Groups of counters that take turns."""
    rotation_s: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    """Length of a group's turn."""


class ReportingSettings(Section):
    """The task's rules; session mode and the gate need them."""

    samples_per_histogram: int = Field(default=10_000, ge=1)
    """H."""
    min_samples: int = Field(default=100, ge=1)
    """A histogram with fewer is not sent."""
    reports_per_class: int = Field(default=1, ge=0)
    """r; 0 is unlimited."""
    tokens_per_day: int = Field(default=32, ge=0)
    """c."""
    hostile_clients: int = Field(default=10, ge=0)
    """m."""
    min_contributors: int = Field(default=200, ge=1)
    """k."""
    cover_rate: float = Field(default=0.1, ge=0, lt=1)
    """q."""
    batch_s: float = Field(default=86_400.0, gt=0, allow_inf_nan=False)
    """Length of a batch."""

    def reporting(self) -> Reporting:
        """The client's side of these rules; tokens are dealt out by the day."""
        return Reporting(
            samples_per_histogram=self.samples_per_histogram,
            min_samples=self.min_samples,
            reports_per_class=self.reports_per_class,
            tokens_per_batch=self.tokens_per_day * days_of_batch(self.batch_s),
            cover_rate=self.cover_rate,
        )


class SweepSettings(Section):
    """One setting that takes several values, all others fixed."""

    parameter: str
    """Such as `fleet.clients`, `sampling.interval` or `mix`."""
    values: tuple[float | str, ...] = Field(min_length=1)
    """What it takes in turn."""


class DaySettings(Section):
    """Experiment `autoscaler`: a day's load."""

    mean_per_s: float = Field(default=50_000.0, ge=0, allow_inf_nan=False)
    """Mean reports a second."""
    swing: float = Field(default=0.6, ge=0, le=1)
    """Amplitude of the daily wave, of the mean."""
    bursts: tuple[tuple[float, float, float], ...] = ((9.0, 0.5, 3.0), (20.0, 0.25, 4.0))
    """(hour, hours, factor)."""
    outages: tuple[tuple[float, float], ...] = ((14.0, 0.5),)
    """(hour, hours)."""
    shard_per_s: float = Field(default=25_000.0, gt=0, allow_inf_nan=False)
    """Reports a second that one shard takes."""
    least: int = Field(default=1, ge=1)
    """Fewest shards."""
    most: int = Field(default=64, ge=1)
    """Most shards."""


class SimulationSettings(Section):
    """A whole file."""

    experiment: Literal["coverage", "sweep", "gate", "traffic", "sampling_error", "autoscaler"] = "coverage"
    """What is asked."""
    mode: Mode = "poisson"
    """By formula, by draws for each application, with clients that stay with one, or launch by launch."""
    seed: int = Field(default=1, ge=0)
    """Of all random draws."""
    apps: tuple[int, ...] = Field(min_length=1)
    """Numbers of applications, each simulated by itself."""
    target: float = Field(default=0.99, gt=0, lt=1)
    """Coverage that is to be reached."""
    definition: Definition = "positions"
    """What coverage means (docs/coverage.md)."""
    hours: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """Length of a simulation; 0 is a little longer than the expected time to the target."""
    steps: int = Field(default=144, ge=1)
    """Points of a curve."""
    fleet: FleetSettings = FleetSettings()
    sampling: SamplingSettings = SamplingSettings()
    workload: WorkloadSettings
    mixes: dict[MixName, MixSettings] = Field(min_length=1)
    """`[mixes.NAME]`: who runs what, each simulated by itself."""
    reporting: ReportingSettings = ReportingSettings()
    sweep: SweepSettings | None = None
    """`[sweep]`: for the experiment `sweep`."""
    samples: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
    """Experiment `sampling_error`: samples of a histogram."""
    day: DaySettings = DaySettings()
    changes: tuple[dict[str, float], ...] = ({},)
    """Experiment `gate`: fields of `reporting`, clients, load, dwell_s or counter_groups to replace."""


def load_simulation(path: Path, overrides: Iterable[str] = ()) -> SimulationSettings:
    """Read a file and check what only the whole can tell.

    Args:
        path: the TOML file.
        overrides: texts `a.b=value`, as `--set` takes them.

    Raises:
        ConfigError: the message names the field.
    """
    file = TomlFile(path)
    override_with(file, overrides)
    settings = validated(file, SimulationSettings)
    check(settings)
    return settings


def check(settings: SimulationSettings) -> None:
    """Raise ConfigError, naming the field, for values that cannot work together."""
    for apps in settings.apps:
        if apps < 1:
            raise ConfigError(f"apps: {apps} is no number of applications.", remedy="Give 1 or more.")
    workload = settings.workload
    if bool(workload.groups) == bool(workload.traces):
        raise ConfigError(
            "workload: give groups, or traces, and not both.",
            remedy="Remove one of workload.groups and traces.",
        )
    if workload.groups:
        shares = np.array([each.apps_share for each in workload.groups])
        require_shares("workload.groups.apps_share", shares)
    for name, mix in settings.mixes.items():
        if mix.group_shares:
            require_shares(f"mixes.{name}.group_shares", np.array(mix.group_shares))
            if workload.groups and len(mix.group_shares) != len(workload.groups):
                raise ConfigError(
                    f"mixes.{name}.group_shares: {len(mix.group_shares)} shares, "
                    f"{len(workload.groups)} groups.",
                    remedy="Give one share a group.",
                )
    if (settings.experiment == "sweep") != (settings.sweep is not None):
        raise ConfigError(
            "sweep: the experiment `sweep` needs a [sweep] table, others none.", remedy="Correct experiment."
        )


def workload_of(settings: WorkloadSettings, apps: int) -> Workload:
    """`apps` applications as the settings describe them."""
    if settings.traces:
        return repeated(from_traces(settings.traces), apps)
    return grouped(
        apps,
        [Group(each.apps_share, each.run_s, each.launch_us, each.spread) for each in settings.groups],
    )


def scenario_of(settings: SimulationSettings, apps: int, mix: MixName) -> Scenario:
    """The scenario of one number of applications and one mix."""
    if mix not in settings.mixes:
        raise ConfigError(
            f"There is no mix {mix!r}.", remedy=f"Use one of {', '.join(sorted(settings.mixes))}."
        )
    workload = workload_of(settings.workload, apps)
    chosen = settings.mixes[mix]
    return Scenario(
        workload,
        time_shares(Mix(chosen.group_shares, chosen.zipf), workload),
        clients=settings.fleet.clients,
        load=settings.fleet.load,
        load_form=settings.fleet.load_form,
        dwell_s=settings.fleet.dwell_s,
        sampling=Sampling(**dict(settings.sampling)),
    )
