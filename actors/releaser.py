"""The release desk of the aggregation service: closes batches, merges shards, gates, hands over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penrose_ray.clock import SystemClock
from penrose_ray.errors import JournalError
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import Handover, Made, make
from penrose_ray.task import verify
from penrose_ray.telemetry import RELEASED_SUMS, RELEASES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.aggregate.arrival import PartialSum
    from penrose_ray.clock import Clock
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.types import BatchId


class Shards(Protocol):
    """All shards and the matcher of a service."""

    def hold(self, *, held: bool) -> None:
        """Let no bucket move between shards, or let them move again."""
        ...

    def batches(self) -> list[BatchId]:
        """Batches whose sums any shard has, closed ones included."""
        ...

    def close_batch(self, batch: BatchId) -> None:
        """Close a batch on every shard."""
        ...

    def sums(self, batch: BatchId) -> list[PartialSum]:
        """The parts of every shard."""
        ...

    def classes(self) -> Sequence[SnippetClass]:
        """All snippet classes."""
        ...


class Releaser:
    """Each batch is handed over once; asked again, it returns the stored bytes."""

    def __init__(
        self,
        signed_task: bytes,
        directory: Path,
        shards: Shards,
        key_file: Path,
        clock: Clock | None = None,
        *,
        quote: bytes = b"",
    ) -> None:
        self._task = verify(signed_task)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.desk = Desk(directory, self._task, clock or SystemClock(), key_file, quote=quote)
        self._shards = shards
        self._encryptor = self._task.cipher().encryptor()

    def batches(self) -> list[BatchId]:
        """Batches that hold reports, are not handed over yet and get no more reports."""
        released = self.handed_over()
        return [batch for batch in self._shards.batches() if self.desk.due(batch) and batch not in released]

    def handed_over(self) -> frozenset[BatchId]:
        """Batches whose hand-over is on disk."""
        return self.desk.releases.batches(self._task.task_id)

    def release(self, batch: BatchId) -> Handover:
        """Close a batch and hand over the sums that pass the gate; raises like `Desk.release`."""
        return self.desk.release(batch, lambda: self._make(batch))

    def _make(self, batch: BatchId) -> Made:
        self._shards.hold(held=True)
        try:
            self._shards.close_batch(batch)
            parts = self._shards.sums(batch)
        finally:
            self._shards.hold(held=False)
        classes = self._shards.classes()
        models = {each.class_id: each.gpu_model for each in classes}
        into = {each.class_id: each.alias_of for each in classes if each.alias_of is not None}
        if unknown := {part.class_id for part in parts} - models.keys():
            raise JournalError(
                f"The class journal does not know {len(unknown)} classes of batch {batch}, among them "
                f"{min(unknown).hex()}: it is older than the shards' journals.",
                remedy="Restore its newest backup; the batch is kept and handed over then.",
            )
        made = make(self._task, parts, models.__getitem__, self._encryptor, into=into)
        RELEASES.add()
        RELEASED_SUMS.add(len(made.handover.entries), gate="passed")
        RELEASED_SUMS.add(made.handover.withheld.sums, gate="withheld")
        return made
