"""A shard of the aggregation service: a thin shell around its journal and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.aggregate.archive import Archive
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import SystemClock
from penrose_ray.task import verify
from penrose_ray.telemetry import BUSY_SECONDS, stage_call

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from penrose_ray.aggregate.arrival import Answer, Arrival, PartialSum, SumKey
    from penrose_ray.aggregate.block import Block, BlockAnswer
    from penrose_ray.aggregate.moving import Placement, Snapshot
    from penrose_ray.aggregate.service import BatchCount, Counts, OpenSums
    from penrose_ray.types import BatchId, BucketId, ClassId, ReportId


class Shard:
    """Every call may be repeated: a restarted shard finds in its journal what it had acknowledged."""

    def __init__(self, path: Path, signed_task: bytes, archive: str = "", disk_mark_bytes: int = 0) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._service = ShardService(
            path,
            verify(signed_task),
            SystemClock(),
            placed=True,
            archive=Archive(archive) if archive else None,
            disk_mark_bytes=disk_mark_bytes,
        )

    def known(self, ids: Sequence[ReportId]) -> set[ReportId]:
        """Which report ids have been accepted."""
        return self._service.known(ids)

    def accept(self, arrivals: Sequence[Arrival]) -> list[Answer]:
        """Journal and add arrivals."""
        with stage_call("shard"):
            return self._service.accept(arrivals)

    def accept_block(self, block: Block) -> BlockAnswer:
        """Journal and add reports that come as columns."""
        with stage_call("shard"):
            return self._service.accept_block(block)

    def busy_s(self) -> float:
        """CPU seconds spent on reports since this process started."""
        return BUSY_SECONDS.value(stage="shard")

    def tick(self, handed_over: Collection[BatchId] = ()) -> None:
        """Do what is due from time to time: watch the disk, store sums, delete old rows of these batches."""
        self._service.upkeep.note_handed_over(handed_over)
        self._service.upkeep.tick()

    def batches(self) -> list[BatchCount]:
        """Batches whose sums are here, closed ones included: a crash may have come before their hand-over."""
        return [*self._service.batches(), *self._service.closed_batches()]

    def compact(self) -> list[BatchId]:
        """Move cold batches to the archive; returns them."""
        return self._service.upkeep.compact()

    def sums(self, batch: BatchId) -> list[PartialSum]:
        """This shard's part of a batch."""
        return self._service.sums(batch)

    def close_batch(self, batch: BatchId) -> None:
        """Take no more reports into a batch."""
        self._service.close_batch(batch)

    def open_sums(self) -> OpenSums:
        """Weights and keep rates of the sums of open batches."""
        return self._service.open_sums()

    def thin(self, halvings: Mapping[SumKey, int]) -> None:
        """Keep one report in 2^halvings of these sums from now on."""
        self._service.regroup.thin(halvings)

    def signatures(self, class_id: ClassId) -> dict[bytes, bytes]:
        """The exact signatures in open sums of a class, by snippet hash."""
        return self._service.regroup.signatures(class_id)

    def split(self, class_id: ClassId, classes: Mapping[bytes, ClassId]) -> None:
        """Give open sums' reports of a class to others, by snippet hash; may be repeated."""
        self._service.regroup.split(class_id, classes)

    def seal(self, buckets: frozenset[BucketId], epoch: int) -> None:
        """Refuse reports of these buckets: they are about to move."""
        self._service.moves.seal(buckets, epoch=epoch)

    def export(self, buckets: frozenset[BucketId], epoch: int, after: int) -> Snapshot:
        """A page of sealed buckets."""
        return self._service.moves.export(buckets, epoch=epoch, after=after)

    def receive(self, page: Snapshot) -> None:
        """Keep a page of buckets that may become this shard's."""
        self._service.moves.receive(page)

    def settle(self, placement: Placement) -> None:
        """Obey the directory's word."""
        self._service.moves.settle(placement)

    def counts(self) -> Counts:
        """Figures for status and progress."""
        return self._service.counts()

    def weights(self) -> dict[SumKey, int]:
        """Reports of each sum that is here."""
        return self._service.weights()

    def close(self) -> None:
        """Close the journal."""
        self._service.close()
