"""Which coming launches are measured, and which counter sets each of them fills."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.gauge import GaugeSource
from penrose_ray.capture.sampler import Rotation, Sampler
from penrose_ray.errors import SourceError
from penrose_ray.histogram import Counter
from penrose_ray.kernel_names import KIND_COUNTER, kind_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from penrose_ray.capture.events import EventBatch
    from penrose_ray.capture.source import EventSource
    from penrose_ray.clock import Clock
    from penrose_ray.task import Task

AHEAD = 32_768
"""Launches that are planned ahead of the last one seen, so that a program never outruns the plan."""


class SamplingPlan:
    """Arms a source ahead of its launches and picks the measured ones out of its batches.

    Beside what the source measures stands the kind of each kernel, which its name tells (`kernel_names.py`).
    Where nothing else is watched, a counter that no counter set wants is measured to mark the samples.
    """

    def __init__(self, task: Task, source: EventSource, *, clock: Clock, rng: np.random.Generator) -> None:
        self._source = source
        self._kinds = _kind_counters(source)
        self.counters = (*source.counters, *self._kinds)
        """What columns of selected launches hold."""
        self.columns = _columns(task, self.counters)
        """Columns for each counter set that can be filled."""
        self._marker = _marker(source, self.columns)
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
        watched = np.zeros(len(self.counters), np.bool_)
        for name in self._rotation.current():
            watched[self.columns.get(self._names[name], np.empty(0, np.intp))] = True
        measured = watched[: len(self._source.counters)]
        if watched.any() and not measured.any():
            measured[self._marker] = True
        counters = [each for each, chosen in zip(self._source.counters, measured, strict=True) if chosen]
        self._source.arm(fresh.tolist(), counters)

    def select(self, launches: EventBatch) -> EventBatch:
        """The measured launches among these, with their kinds: sources measure what was armed only."""
        measured = launches.take(np.flatnonzero(np.isfinite(launches.counters).any(axis=1)))
        names = self._source.names
        kinds = np.array([kind_number(names[name]) for name in measured.name_id], np.float64)
        beside = np.repeat(kinds[:, None], len(self._kinds), axis=1)
        return replace(measured, counters=np.hstack([measured.counters, beside]))


def _kind_counters(source: EventSource) -> tuple[Counter, ...]:
    """The kind of kernel, beside each (source, vendor) that is measured of kernels."""
    if isinstance(source, GaugeSource):
        return ()
    origins = dict.fromkeys((each.source, each.vendor) for each in source.counters)
    return tuple(Counter(KIND_COUNTER, "1", *origin) for origin in origins)


def _marker(source: EventSource, columns: Mapping[int, NDArray[np.intp]]) -> int:
    """The source's column that marks samples of which nothing is to be measured: one in no counter set."""
    wanted = {int(column) for each in columns.values() for column in each}
    return next((column for column in range(len(source.counters)) if column not in wanted), 0)


def _columns(task: Task, counters: Sequence[Counter]) -> dict[int, NDArray[np.intp]]:
    place = {counter: column for column, counter in enumerate(counters)}
    columns = {
        index: np.array([place[counter] for counter in each.counters], np.intp)
        for index, each in enumerate(task.counter_sets)
        if all(counter in place for counter in each.counters)
    }
    if not columns:
        offered = ", ".join(counter.label for counter in counters) or "no counter"
        raise SourceError(
            f"The source measures {offered}, none of which the task asks for.",
            remedy="Use another source, or a task with these counters.",
        )
    return columns
