"""The sealed sample of a fleet whose reports are plain: a small service of its own beside the large one.

One shard takes the sample's sealed reports under a task that differs in its slot profile and has no gate, for
its clients are simulated. The design server opens the sums, which must equal the fleet's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.parquet as pq

from penrose_ray.actors.fleet_sender import Pair, Truth, merged
from penrose_ray.actors.releaser import Releaser
from penrose_ray.actors.remote import RemoteShards, actor, ask
from penrose_ray.actors.shard import Shard
from penrose_ray.actors.thinner import Thinner
from penrose_ray.aggregate.moving import Placement
from penrose_ray.aggregate.routing import BUCKETS
from penrose_ray.clock import SystemClock
from penrose_ray.errors import SumRuleError
from penrose_ray.task import verify
from penrose_ray.types import BucketId, ClassId

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from penrose_ray.actors.opened import OpenedFile
    from penrose_ray.actors.remote import Handle

NAME: Final = "sample"


@dataclass(frozen=True, slots=True)
class SampleCheck:
    """What became of the sealed sample."""

    reports: int
    sums: int
    """Sums that were decrypted and equal the plain ones."""


class SealedSample:
    """Shard and release desk of the sealed sample."""

    def __init__(
        self, design_server: Handle, home: Path, prefix: str, matcher: Handle, directory: Handle
    ) -> None:
        self._design_server = design_server
        self.signed_task: bytes = ask(design_server.call.remote("sample_task"))
        self._task = verify(self.signed_task)
        self._shard = actor(Shard, name=f"{prefix} {NAME}", max_concurrency=4).remote(
            home / f"{NAME}.sqlite", self.signed_task
        )
        ask(self._shard.ready.remote())
        ask(self._shard.settle.remote(Placement(1, frozenset(map(BucketId, range(BUCKETS))))))
        unthinned = Thinner(list, SystemClock(), most_per_s=0.0, least_per_s=1.0)
        shards = RemoteShards(directory, matcher, lambda: [self._shard], unthinned)
        key_file = home / NAME / "keys" / "ledger.key"
        self._releaser = Releaser(self.signed_task, home / NAME, shards, key_file)

    def check(self, truths: Sequence[Mapping[Pair, Truth]], path: Path) -> SampleCheck:
        """Release the sample, let the design server open it and compare.

        Args:
            truths: of each fleet.
            path: where the opened sample is written, as Parquet.

        Raises:
            SumRuleError: a decrypted sum is not the plain one.
        """
        truth = merged(truths)
        handovers = [self._releaser.release(batch) for batch in self._releaser.batches()]
        raw = [each.encode() for each in handovers]
        opened: OpenedFile = ask(self._design_server.call.remote("open", raw, path.absolute()))
        rows = _rows(path)
        wrong = [pair for pair, each in truth.items() if not _same(each, rows.get(self._name(pair)))]
        if wrong or opened.histograms + len(opened.discarded) != len(truth):
            raise SumRuleError(
                f"{len(wrong)} of {len(truth)} decrypted sums of the sealed sample are not the plain ones.",
                remedy="Report it: encryption or aggregation is wrong.",
            )
        return SampleCheck(sum(each.weight for each in truth.values()), len(truth))

    def _name(self, pair: Pair) -> tuple[ClassId, str]:
        return pair.class_id, self._task.counter_sets[pair.counter_set].name

    def close(self) -> None:
        """Close the journal."""
        ask(self._shard.close.remote(), 1)


def _rows(path: Path) -> dict[tuple[ClassId, str], dict[str, object]]:
    rows = pq.read_table(path).to_pylist()
    return {(ClassId(bytes.fromhex(row["class_id"])), row["counter_set"]): row for row in rows}


def _same(truth: Truth, row: dict[str, object] | None) -> bool:
    """The sum rule, which the design server checks, gives `unfilled`; sums of cover alone are discarded."""
    if row is None:
        return truth.real_reports == 0
    numbers = (row["reports"], row["real_reports"]) == (truth.weight, truth.real_reports)
    return numbers and np.array_equal(np.asarray(row["bins"]), truth.bins)
