"""What is simulated: a workload, who runs it, and how it is sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penrose_ray.errors import ConfigError
from penrose_ray.sim.population import require_shares

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penrose_ray.sim.workloads import Workload

Sampler = Literal["jitter", "stride"]
LoadForm = Literal["duty", "on_off"]


def _least(name: str, value: float, least: float) -> None:
    if not math.isfinite(value) or value < least:
        raise ConfigError(f"{name} = {value} is below {least:g}.", remedy=f"Give {least:g} or more.")


def _positive(name: str, value: float) -> None:
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(f"{name} = {value} is not positive.", remedy=f"Give a {name} above 0.")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How clients sample; the letters are the task's."""

    interval: float = 10_000
    """S: one launch in S."""
    sampler: Sampler = "jitter"
    """`jitter` draws each gap from U[1, 2S-1]; `stride` is fixed and starts anew every `reset_s`."""
    reset_s: float = 600.0
    """O: seconds between two offsets of the stride; also the length of a simulated window."""
    counter_groups: int = 1
    """G: groups of counters that are watched in turn."""
    rotation_s: float = 3600.0
    """Seconds that one group is watched."""

    def __post_init__(self) -> None:
        """Refuse what cannot be sampled, by the field's name."""
        _least("interval", self.interval, 1)
        _least("counter_groups", self.counter_groups, 1)
        _positive("reset_s", self.reset_s)
        _positive("rotation_s", self.rotation_s)


@dataclass(frozen=True, eq=False)
class Scenario:
    """A fleet with its applications."""

    workload: Workload
    share: NDArray[np.float64]
    """q: share of the fleet's busy time of each application."""
    clients: int = 100_000
    load: float = 0.1
    """rho: share of time that a GPU is busy."""
    sampling: Sampling = Sampling()
    load_form: LoadForm = "duty"
    """`duty`: busy for that share of each window; `on_off`: busy for whole windows, that share of them."""
    dwell_s: float = 0.0
    """Seconds that a client stays with an application; 0 is one window."""

    def __post_init__(self) -> None:
        """Refuse impossible fleets, by the field's name."""
        _least("clients", self.clients, 1)
        if not 0 < self.load <= 1:
            raise ConfigError(f"load = {self.load} is no share of time.", remedy="Give above 0 to 1.")
        if self.dwell_s < 0 or not math.isfinite(self.dwell_s):
            raise ConfigError(f"dwell_s = {self.dwell_s} is negative.", remedy="Give 0 or more.")
        if len(self.share) != len(self.workload):
            raise ConfigError(
                f"share: {len(self.share)} shares for {len(self.workload)} applications.",
                remedy="Give one each.",
            )
        require_shares("share", self.share)

    @property
    def cells(self) -> NDArray[np.int64]:
        """Pairs of a position and a counter group that are to be covered, by application."""
        return self.workload.launches * self.sampling.counter_groups

    @property
    def rate_per_s(self) -> NDArray[np.float64]:
        """Lambda = N rho q / (S T G): samples a second of one cell, by application."""
        return self.share * (
            self.clients
            * self.load
            / (self.sampling.interval * self.sampling.counter_groups * self.workload.run_s)
        )

    @property
    def samples_per_window(self) -> NDArray[np.float64]:
        """Mean samples that a client takes in a window in which it runs, by application."""
        busy = self.load if self.load_form == "duty" else 1.0
        return busy * self.sampling.reset_s / (self.workload.launch_s * self.sampling.interval)
