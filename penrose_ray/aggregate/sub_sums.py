"""Sums taken apart by bucket, for tasks whose sums are handed over in sub-batches."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from penrose_ray.aggregate.arrival import CHECKSUM_BYTES, PartialSum
from penrose_ray.aggregate.sums import id_checksum

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.crypto.accumulate import Accumulators
    from penrose_ray.crypto.plain import PlainAccumulators
    from penrose_ray.task import Task
    from penrose_ray.types import ReportId


def split(task: Task, wholes: Sequence[PartialSum], rows: Iterable[Sequence[Row]]) -> list[PartialSum]:
    """Parts of each sum, one for each remainder of the bucket; the reports, in groups, are added again."""
    ids: dict[tuple[SumKey, int], list[ReportId]] = defaultdict(list)
    sums: Accumulators[tuple[SumKey, int]] | PlainAccumulators[tuple[SumKey, int]]
    sums = task.cipher().accumulators(task.capacity())
    for group in rows:
        places = [(row.key, row.bucket % task.sub_batches) for row in group]
        for place, row in zip(places, group, strict=True):
            ids[place].append(row.arrival.report_id)
        sums.add_many(list(zip(places, (row.arrival.blob for row in group), strict=True)))
    parts = []
    for whole in wholes:
        for number in range(task.sub_batches):
            if members := tuple(ids.get((whole.key, number), ())):
                checksum = id_checksum(members).to_bytes(CHECKSUM_BYTES, "big")
                blob = sums.to_bytes((whole.key, number))
                parts.append(
                    replace(whole, weight=len(members), blob=blob, id_checksum=checksum, ids=members)
                )
    return parts
