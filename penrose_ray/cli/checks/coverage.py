"""Will a batch of this fleet cover its kernels? If not, which S and O would."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penrose_ray.cli.checks.machine import failure, fine, warning
from penrose_ray.sim.closed_form import hit_probability, launches_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.cli.checks.machine import Finding

TARGET: Final = 0.99
_POOR: Final = 0.5
SHORTEST_OFFSET_S: Final = 300
LONGEST_OFFSET_S: Final = 1_800
"""Between these O is to be tuned."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Who runs what, on average."""

    gpus: int
    apps: int
    launches_per_s: float
    """Of a GPU that is busy."""
    load: float
    """Share of time that it is."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """What a task asks for, as far as coverage depends on it."""

    interval: int
    sampler: str
    offset_reset_s: int
    snippet_launches: int
    batch_s: int
    groups: int
    """Groups of counter sets that take turns."""

    @classmethod
    def of(cls, task: Mapping[str, Any]) -> Sampling:
        """From a task's draft with its defaults."""
        return cls(
            interval=task["sampling_interval"],
            sampler=task["sampler"],
            offset_reset_s=task["offset_reset_s"],
            snippet_launches=task["snippet_launches"],
            batch_s=task["batch_s"],
            groups=len(task.get("rotation", ())) or 1,
        )


def coverage(sampling: Sampling, fleet: Fleet, *, least_interval: int) -> Finding:
    """Share of an average application's kernels that one batch shows, for kernels launched once a snippet.

    `jitter`: 1 - (1 - 1/S)^u with u launches of the kernel in the fleet and batch. `paper`: between two
    offsets a GPU may meet the same launches of its loop again and again, so u counts offsets instead.

    Args:
        sampling: the task's parameters.
        fleet: whose GPUs.
        least_interval: least S that the owner's policy allows.
    """
    chances = _chances(sampling, fleet, sampling.offset_reset_s)
    found = hit_probability(sampling.interval, chances)
    text = (
        f"{found:.1%} of the kernels of an average application in a batch of {sampling.batch_s / 3600:g} h "
        f"with S = {sampling.interval:,}"
    )
    if sampling.sampler == "paper":
        text += f" and O = {sampling.offset_reset_s:,} s"
    if found >= TARGET:
        return fine("coverage", text)
    tell = failure if found < _POOR else warning
    return tell("coverage", text, _remedy(sampling, fleet, least_interval))


def _chances(sampling: Sampling, fleet: Fleet, offset_reset_s: int) -> float:
    """Independent chances to sample one kernel in a batch."""
    busy_s = _busy_s(sampling, fleet)
    launches = busy_s * fleet.launches_per_s / sampling.snippet_launches
    return min(launches, busy_s / offset_reset_s) if sampling.sampler == "paper" else launches


def _busy_s(sampling: Sampling, fleet: Fleet) -> float:
    """Seconds in a batch for which GPUs run an application while its counter group is watched."""
    return fleet.gpus / fleet.apps / sampling.groups * fleet.load * sampling.batch_s


def _remedy(sampling: Sampling, fleet: Fleet, least_interval: int) -> str:
    shortest = min(sampling.offset_reset_s, SHORTEST_OFFSET_S)
    if sampling.sampler == "paper":
        reset = math.floor(_busy_s(sampling, fleet) / launches_for(sampling.interval, TARGET))
        if reset >= SHORTEST_OFFSET_S and _enough(sampling, fleet, sampling.interval, reset):
            return f"Set task.offset_reset_s = {min(reset, LONGEST_OFFSET_S)}."
    interval = _interval_for(_chances(sampling, fleet, shortest))
    if interval >= max(least_interval, 1):
        offset = f" and task.offset_reset_s = {shortest}" if sampling.sampler == "paper" else ""
        return f"Set task.sampling_interval = {interval}{offset}."
    more = launches_for(max(least_interval, 1), TARGET) / max(_chances(sampling, fleet, shortest), 1e-9)
    return (
        f"The policy's least S = {least_interval:,} is not enough: it takes {more:,.0f} times as many GPUs, "
        "a batch so many times as long, or fewer counter groups."
    )


def _enough(sampling: Sampling, fleet: Fleet, interval: int, reset: int) -> bool:
    return hit_probability(interval, _chances(sampling, fleet, reset)) >= TARGET


def _interval_for(chances: float) -> int:
    """Greatest S of two digits with which so many chances reach the target; 0 when none does."""
    if chances < 1:
        return 0
    exact = -1 / math.expm1(math.log1p(-TARGET) / chances)
    if exact < 1:
        return 0
    scale: int = 10 ** max(0, math.floor(math.log10(exact)) - 1)
    return math.floor(exact / scale) * scale
