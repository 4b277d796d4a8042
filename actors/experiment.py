"""Experiments that send a fleet's reports through matcher and shards, and compare what comes out.

Nothing here needs Ray: a `Route` stands for matcher and shards wherever they run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from penrose_ray.aggregate.arrival import Arrival
from penrose_ray.histogram import BINS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from penrose_ray.actors.fleet import ReportBatch
    from penrose_ray.aggregate.arrival import Answer, Outcome
    from penrose_ray.crypto.blinding import Encryptor
    from penrose_ray.crypto.packing import Slots
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.types import ClassId, ReportId
    from penrose_ray.wire import Report


class Route(Protocol):
    """Matcher and shards."""

    def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        """Class of each (GPU model, scheme, signature)."""
        ...

    def owner_of(self, report_id: ReportId) -> str:
        """Name of the shard that takes this report."""
        ...

    def accept(self, shard: str, arrivals: Sequence[Arrival]) -> list[Answer]:
        """Journal and add arrivals."""
        ...


class Pair(NamedTuple):
    """What one sum of a batch is over."""

    class_id: ClassId
    counter_set: int


@dataclass(eq=False)
class Truth:
    """The slots of a sum, added up in the clear."""

    bins: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    unfilled: int = 0
    real_reports: int = 0
    weight: int = 0


class Experiment:
    """Sends batches of a fleet along a route and keeps the truth beside them."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._classes: dict[tuple[str, bytes], SnippetClass] = {}
        self.truth: dict[Pair, Truth] = defaultdict(Truth)
        """Plain sums of all reports that were accepted."""
        self.outcomes: Counter[Outcome] = Counter()

    def send(self, batch: ReportBatch, encryptor: Encryptor) -> None:
        """Send the stratified sample of a batch, really sealed."""
        reports = batch.sealed_reports(encryptor)
        rows = np.flatnonzero(batch.sealed).tolist()
        self._learn(reports)
        by_shard: dict[str, list[tuple[Report, int]]] = defaultdict(list)
        for report, row in zip(reports, rows, strict=True):
            by_shard[self._route.owner_of(report.report_id)].append((report, row))
        for shard, mine in by_shard.items():
            answers = self._route.accept(shard, [self._arrival(report) for report, _ in mine])
            for (report, row), answer in zip(mine, answers, strict=True):
                self.outcomes[answer.outcome] += 1
                if answer.outcome.acknowledged:
                    self._add(report, batch, row)

    def _learn(self, reports: Iterable[Report]) -> None:
        wanted = list(
            {
                (each.gpu_model, each.scheme, each.signature)
                for each in reports
                if (each.gpu_model, each.signature) not in self._classes
            }
        )
        if wanted:
            for (model, _, signature), found in zip(wanted, self._route.match(wanted), strict=True):
                self._classes[model, signature] = found

    def _class_of(self, report: Report) -> SnippetClass:
        return self._classes[report.gpu_model, report.signature]

    def _arrival(self, report: Report) -> Arrival:
        found = self._class_of(report)
        return Arrival.of(report, found.class_id, found.snippet_hash)

    def _add(self, report: Report, batch: ReportBatch, row: int) -> None:
        total = self.truth[Pair(self._class_of(report).class_id, report.counter_set)]
        total.bins += batch.counts[row]
        total.unfilled += int(batch.unfilled[row])
        total.real_reports += int(batch.real[row])
        total.weight += 1


def differences(truth: Mapping[Pair, Truth], opened: Mapping[Pair, Slots]) -> list[Pair]:
    """Sums that are missing on one side, or whose slots are not equal."""
    wrong = set(truth) ^ set(opened)
    for pair in set(truth) & set(opened):
        wanted, found = truth[pair], opened[pair]
        same = (wanted.unfilled, wanted.real_reports) == (found.unfilled, found.real_reports)
        if not same or not np.array_equal(wanted.bins, found.bins):
            wrong.add(pair)
    return sorted(wrong)
