"""A shard of the aggregation service: a thin shell around its journal and sums."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import SystemClock
from penrose_ray.task import verify

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.aggregate.arrival import Answer, Arrival, PartialSum
    from penrose_ray.aggregate.service import BatchCount, Counts
    from penrose_ray.types import BatchId, ReportId


class Shard:
    """Every call may be repeated: a restarted shard finds in its journal what it had acknowledged."""

    def __init__(self, path: Path, signed_task: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._service = ShardService(path, verify(signed_task), SystemClock())

    def known(self, ids: Sequence[ReportId]) -> set[ReportId]:
        """Which report ids have been accepted."""
        return self._service.known(ids)

    def accept(self, arrivals: Sequence[Arrival]) -> list[Answer]:
        """Journal and add arrivals."""
        return self._service.accept(arrivals)

    def batches(self) -> list[BatchCount]:
        """Open batches that hold reports."""
        return self._service.batches()

    def sums(self, batch: BatchId) -> list[PartialSum]:
        """This shard's part of a batch."""
        return self._service.sums(batch)

    def close_batch(self, batch: BatchId) -> None:
        """Take no more reports into a batch."""
        self._service.close_batch(batch)

    def counts(self) -> Counts:
        """Figures for status and progress."""
        return self._service.counts()

    def pid(self) -> int:
        """Process of this shard."""
        return os.getpid()

    def close(self) -> None:
        """Close the journal."""
        self._service.close()
