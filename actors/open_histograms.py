"""The client's open histograms: which samples wait for which report, and when a report is due."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.histogram import BINS
from penrose_ray.seal import Contribution

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from penrose_ray.actors.local_classes import LocalClass
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId

MOST_OPEN_CLASSES = 64


@dataclass(frozen=True, slots=True)
class Due:
    """A contribution to be sealed and sent."""

    local_class: LocalClass
    batch: BatchId
    contribution: Contribution


@dataclass(slots=True)
class _Open:
    bins: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    seen: int = 0
    """Samples offered in this batch; more than are kept once the reservoir is full."""
    carried: bool = False


class OpenHistograms:
    """Samples by (local class, counter set) for the current batch.

    With r = 0 a histogram is due as soon as it holds H samples. With r > 0 samples go to a reservoir of r H
    (algorithm R, Vitter 1985), so what is due at the batch's end is unbiased however many samples came.
    `LocalClasses` keeps count of what was sent.
    """

    def __init__(
        self, task: Task, rng: np.random.Generator, *, most_classes: int = MOST_OPEN_CLASSES
    ) -> None:
        self._task = task
        self._rng = rng
        self._most_classes = most_classes
        self._classes: OrderedDict[LocalClass, dict[int, _Open]] = OrderedDict()
        self._batch: BatchId | None = None
        self.dropped_samples = 0
        """Samples of histograms that stayed under min_samples."""

    def add(
        self, local_class: LocalClass, counter_set: int, bins: NDArray[np.int64], *, now_s: float
    ) -> list[Due]:
        """Take samples, given by their bins; returns the histograms that are now due."""
        due = self.roll(now_s)
        due.extend(self._touch(local_class))
        each = self._classes[local_class].setdefault(counter_set, _Open())
        if self._task.reports_per_class:
            self._keep_some(each, bins.astype(np.uint8))
            return due
        each.bins = np.concatenate((each.bins, bins.astype(np.uint8)))
        due.extend(self._full(local_class, counter_set, each))
        return due

    def roll(self, now_s: float) -> list[Due]:
        """End the batch if its time is over; short histograms are carried over once."""
        batch = self._task.batch_of(now_s)
        if self._batch is None:
            self._batch = batch
        if batch == self._batch:
            return []
        due = [one for local_class in list(self._classes) for one in self._end(local_class, carry=True)]
        self._batch = batch
        return due

    def finish(self) -> list[Due]:
        """Close everything: the client stops. Histograms under min_samples are dropped and counted."""
        return [one for local_class in list(self._classes) for one in self._end(local_class, carry=False)]

    def _touch(self, local_class: LocalClass) -> list[Due]:
        due: list[Due] = []
        if local_class not in self._classes:
            if len(self._classes) == self._most_classes:
                oldest = next(iter(self._classes))
                due.extend(self._end(oldest, carry=False))
            self._classes[local_class] = {}
        self._classes.move_to_end(local_class)
        return due

    def _keep_some(self, each: _Open, bins: NDArray[np.uint8]) -> None:
        room = self._task.reports_per_class * self._task.samples_per_histogram
        free = room - len(each.bins)
        each.bins = np.concatenate((each.bins, bins[:free]))
        each.seen += min(free, len(bins))
        rest = bins[free:]
        if len(rest):
            ranks = np.arange(each.seen + 1, each.seen + 1 + len(rest))
            places = self._rng.integers(0, ranks)
            kept = places < room
            each.bins[places[kept]] = rest[kept]
            each.seen += len(rest)

    def _full(self, local_class: LocalClass, counter_set: int, each: _Open) -> Iterator[Due]:
        size = self._task.samples_per_histogram
        while len(each.bins) >= size:
            yield self._due(local_class, counter_set, each.bins[:size])
            each.bins = each.bins[size:]
            each.carried = False

    def _end(self, local_class: LocalClass, *, carry: bool) -> Iterator[Due]:
        kept: dict[int, _Open] = {}
        for counter_set, each in self._classes.pop(local_class).items():
            if len(each.bins) >= self._task.min_samples:
                yield from self._cut(local_class, counter_set, each)
            elif carry and not each.carried and len(each.bins):
                kept[counter_set] = _Open(each.bins, len(each.bins), carried=True)
            else:
                self.dropped_samples += len(each.bins)
        if kept:
            self._classes[local_class] = kept

    def _cut(self, local_class: LocalClass, counter_set: int, each: _Open) -> Iterator[Due]:
        size = self._task.samples_per_histogram
        mixed = self._rng.permutation(each.bins)
        for start in range(0, len(mixed), size):
            part = mixed[start : start + size]
            if len(part) >= self._task.min_samples:
                yield self._due(local_class, counter_set, part)
            else:
                self.dropped_samples += len(part)

    def _due(self, local_class: LocalClass, counter_set: int, bins: NDArray[np.uint8]) -> Due:
        if self._batch is None:
            raise RuntimeError("a histogram cannot be due before its first sample")
        counts = np.bincount(bins, minlength=BINS).astype(np.int64)
        return Due(local_class, self._batch, Contribution(counter_set, counts, real=True))
