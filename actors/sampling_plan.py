"""Which coming launches are measured, and which counter sets each of them fills."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.sampler import Rotation, Sampler
from penrose_ray.errors import SourceError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.capture.events import EventBatch
    from penrose_ray.capture.source import EventSource
    from penrose_ray.clock import Clock
    from penrose_ray.task import Task

AHEAD = 32_768
"""Launches that are planned ahead of the last one seen, so that a program never outruns the plan."""


class SamplingPlan:
    """Arms a source ahead of its launches and picks the measured ones out of its batches."""

    def __init__(self, task: Task, source: EventSource, *, clock: Clock, rng: np.random.Generator) -> None:
        self._source = source
        self.columns = _columns(task, source)
        """Columns of the source for each counter set that it can fill."""
        self._names = {each.name: index for index, each in enumerate(task.counter_sets)}
        self._sampler = Sampler(
            interval=task.sampling_interval,
            mode=task.sampler,
            offset_reset_s=task.offset_reset_s,
            rng=rng,
            clock=clock,
        )
        phase = int(rng.integers(len(task.rotation)))
        self._rotation = Rotation(task.rotation, rotation_s=task.rotation_s, clock=clock, phase=phase)

    def arm(self, next_seq: int) -> None:
        """Plan up to AHEAD launches from `next_seq` on."""
        fresh = self._sampler.schedule(next_seq + AHEAD)
        if not len(fresh):
            return
        watched = np.zeros(len(self._source.counters), np.bool_)
        for name in self._rotation.current():
            watched[self.columns.get(self._names[name], np.empty(0, np.intp))] = True
        counters = [each for each, chosen in zip(self._source.counters, watched, strict=True) if chosen]
        self._source.arm(fresh.tolist(), counters)

    def select(self, launches: EventBatch) -> EventBatch:
        """The measured launches among these: sources measure what was armed and nothing else."""
        return launches.take(np.flatnonzero(np.isfinite(launches.counters).any(axis=1)))


def _columns(task: Task, source: EventSource) -> dict[int, NDArray[np.intp]]:
    place = {counter: column for column, counter in enumerate(source.counters)}
    columns = {
        index: np.array([place[counter] for counter in each.counters], np.intp)
        for index, each in enumerate(task.counter_sets)
        if all(counter in place for counter in each.counters)
    }
    if not columns:
        offered = ", ".join(counter.label for counter in source.counters) or "no counter"
        raise SourceError(
            f"The source measures {offered}, none of which the task asks for.",
            remedy="Use another source, or a task with these counters.",
        )
    return columns
