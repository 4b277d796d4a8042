"""Sources that read a whole device now and then: labelled as gauges, never as counters of a kernel."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.events import EventBatch, KernelKind
from penrose_ray.capture.queued import DEFAULT_CAPACITY, QueuedSource

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penrose_ray.clock import Clock
    from penrose_ray.histogram import Counter

NAME = "device gauge"
_NS_PER_S = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Reading:
    """One device at one time; counters that the device does not offer are missing, never 0."""

    identity: str
    """UUID of the device or MIG instance."""
    model: str
    values: Mapping[Counter, float]
    time_ns: int = 0
    """0: now."""


class GaugeSource(QueuedSource):
    """Polls readings at most once a period.

    Args:
        counters: what may be read.
        clock: for the period.
        period_s: least time between two readings.
        capacity: readings that may wait for `poll`.
    """

    def __init__(
        self,
        counters: tuple[Counter, ...],
        *,
        clock: Clock,
        period_s: float = 1.0,
        capacity: int = DEFAULT_CAPACITY,
    ) -> None:
        super().__init__(counters, capacity=capacity, gauges=True)
        self.clock = clock
        self._period_ns = round(period_s * _NS_PER_S)
        self._due_ns = 0

    @abstractmethod
    def _readings(self) -> Sequence[Reading]:
        """Every device now."""

    def arm(self, launches: Sequence[int], counters: Sequence[Counter]) -> None:
        """Nothing is to be armed: a device is read every period, whatever it runs."""

    def _pull(self, wanted: int) -> None:
        del wanted
        now = self.clock.monotonic_ns()
        if now >= self._due_ns:
            self._due_ns = now + self._period_ns
            self.push_readings(self._readings())

    def push_readings(self, readings: Sequence[Reading]) -> None:
        """Queue readings as rows; the same one twice is one."""
        if not readings:
            return
        known = {(each.identity, each.time_ns, tuple(each.values.items())): each for each in readings}
        self.tally.duplicates += len(readings) - len(known)
        readings = list(known.values())
        values = np.full((len(readings), len(self.counters)), np.nan)
        for row, reading in enumerate(readings):
            for column, counter in enumerate(self.counters):
                values[row, column] = reading.values.get(counter, np.nan)
        times = [reading.time_ns or self.clock.monotonic_ns() for reading in readings]
        devices = [self.device_id(reading.model, reading.identity) for reading in readings]
        self.queue.push(
            EventBatch.of(
                len(readings),
                len(self.counters),
                name_id=self.name_id(NAME),
                kind=int(KernelKind.GAUGE),
                device=devices,
                start_ns=times,
                end_ns=times,
                counters=values,
            )
        )
