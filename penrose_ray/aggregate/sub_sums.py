"""A sum taken apart by bucket, for tasks whose sums are handed over in sub-batches."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from penrose_ray.aggregate.arrival import CHECKSUM_BYTES, PartialSum
from penrose_ray.aggregate.sums import id_checksum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.aggregate.arrival import Row
    from penrose_ray.crypto.accumulate import Accumulators
    from penrose_ray.crypto.plain import PlainAccumulators
    from penrose_ray.task import Task


def split(task: Task, whole: PartialSum, rows: Sequence[Row]) -> list[PartialSum]:
    """Parts of a sum, one for each remainder of the bucket; the reports are added again."""
    groups: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.bucket % task.sub_batches].append(row)
    sums: Accumulators[int] | PlainAccumulators[int] = task.cipher().accumulators(task.capacity())
    sums.add_many([(number, row.arrival.blob) for number, members in groups.items() for row in members])
    parts = []
    for number, members in sorted(groups.items()):
        ids = tuple(row.arrival.report_id for row in members)
        checksum = id_checksum(ids).to_bytes(CHECKSUM_BYTES, "big")
        parts.append(
            replace(whole, weight=len(ids), blob=sums.to_bytes(number), id_checksum=checksum, ids=ids)
        )
    return parts
