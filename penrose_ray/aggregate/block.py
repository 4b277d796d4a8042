"""Reports as columns: what a fleet sends in one message and the journal keeps as one record.

A thousand reports of one hour cost one row of the journal instead of a thousand. Everything else - look-up by
id, judgement, sums, buckets that move - treats them like reports that came one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from penrose_ray.aggregate.arrival import Arrival, Outcome, Row, SumKey
from penrose_ray.aggregate.id_index import ID_BYTES
from penrose_ray.aggregate.routing import bucket_of
from penrose_ray.aggregate.rows import DamagedRowError
from penrose_ray.types import BatchId, ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

OUTCOMES: Final = tuple(Outcome)
"""An outcome's place is its code in `BlockAnswer`."""


class BlockClass(msgspec.Struct, frozen=True, array_like=True):
    """What the reports of one exact signature have in common."""

    class_id: bytes
    snippet_hash: bytes
    signature: bytes


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """n reports that were created in the same hour."""

    created_hour: int
    classes: tuple[BlockClass, ...]
    class_of: NDArray[np.int64]
    """Place in `classes`, shape (n,)."""
    counter_set: NDArray[np.int64]
    """Shape (n,)."""
    report_id: NDArray[np.uint8]
    """Shape (n, 32)."""
    blobs: NDArray[np.uint8]
    """Shape (n, bytes of a blob)."""

    def __len__(self) -> int:
        return len(self.class_of)

    @classmethod
    def of(cls, arrivals: Sequence[Arrival]) -> Block:
        """These arrivals, of one hour, as a block."""
        kinds = [BlockClass(each.class_id, each.snippet_hash, each.signature) for each in arrivals]
        places = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
        return cls(
            arrivals[0].created_hour,
            tuple(places),
            np.array([places[kind] for kind in kinds], np.int64),
            np.array([each.counter_set for each in arrivals], np.int64),
            _matrix(b"".join(each.report_id for each in arrivals), len(arrivals)),
            _matrix(b"".join(each.blob for each in arrivals), len(arrivals)),
        )

    def part(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Block:
        """Some of these reports."""
        return Block(
            self.created_hour,
            self.classes,
            self.class_of[rows],
            self.counter_set[rows],
            self.report_id[rows],
            self.blobs[rows],
        )

    def ids(self) -> list[ReportId]:
        """Report ids in order."""
        raw = self.report_id.tobytes()
        return [ReportId(raw[at : at + ID_BYTES]) for at in range(0, len(raw), ID_BYTES)]

    def blob_list(self) -> list[bytes]:
        """Blobs in order."""
        raw, width = self.blobs.tobytes(), self.blobs.shape[1]
        return [raw[at : at + width] for at in range(0, len(raw), width)]

    def groups(self, batch: BatchId) -> dict[SumKey, list[int]]:
        """Places of the reports of each sum."""
        numbers: dict[bytes, int] = {}
        number = np.array([numbers.setdefault(each.class_id, len(numbers)) for each in self.classes])
        pair = number[self.class_of] * (int(self.counter_set.max()) + 1) + self.counter_set
        order = np.argsort(pair, kind="stable")
        starts = np.flatnonzero(np.diff(pair[order], prepend=-1))
        firsts, places = order[starts], order.tolist()
        keys = zip(self.class_of[firsts].tolist(), self.counter_set[firsts].tolist(), strict=True)
        ends = zip(starts.tolist(), [*starts[1:].tolist(), len(places)], strict=True)
        return {
            SumKey(ClassId(self.classes[kind].class_id), counter, batch): places[start:end]
            for (kind, counter), (start, end) in zip(keys, ends, strict=True)
        }

    def arrivals(self) -> list[Arrival]:
        """The same, one by one."""
        columns = zip(
            self.ids(), self.class_of.tolist(), self.counter_set.tolist(), self.blob_list(), strict=True
        )
        found = []
        for report_id, kind, counter_set, blob in columns:
            named = self.classes[kind]
            class_id = ClassId(named.class_id)
            found.append(
                Arrival(
                    report_id,
                    class_id,
                    named.snippet_hash,
                    counter_set,
                    self.created_hour,
                    named.signature,
                    blob,
                )
            )
        return found

    def rows(self, batch: BatchId) -> list[Row]:
        """The same as the journal keeps them one by one."""
        return [
            Row(each, bucket_of(each.report_id), SumKey(each.class_id, each.counter_set, batch))
            for each in self.arrivals()
        ]

    def encode(self, batch: BatchId) -> bytes:
        """The journal's record."""
        used, class_of = np.unique(self.class_of, return_inverse=True)
        record = _Record(
            batch,
            self.created_hour,
            tuple(self.classes[at] for at in used.tolist()),
            class_of.astype("<u4").tobytes(),
            self.counter_set.astype("<u4").tobytes(),
            self.report_id.tobytes(),
            self.blobs.tobytes(),
        )
        return msgspec.msgpack.encode(record)


class _Record(msgspec.Struct, frozen=True, array_like=True):
    batch: int
    created_hour: int
    classes: tuple[BlockClass, ...]
    class_of: bytes
    counter_set: bytes
    report_id: bytes
    blobs: bytes


def decode(raw: bytes) -> tuple[Block, BatchId]:
    """A block and its batch from the journal's record.

    Raises:
        DamagedRowError: it is no record.
    """
    try:
        found = msgspec.msgpack.decode(raw, type=_Record)
    except msgspec.MsgspecError as error:
        raise DamagedRowError("a block of reports") from error
    count = len(found.report_id) // ID_BYTES
    block = Block(
        found.created_hour,
        found.classes,
        np.frombuffer(found.class_of, "<u4").astype(np.int64),
        np.frombuffer(found.counter_set, "<u4").astype(np.int64),
        _matrix(found.report_id, count),
        _matrix(found.blobs, count),
    )
    return block, BatchId(found.batch)


@dataclass(frozen=True, eq=False, slots=True)
class BlockAnswer:
    """What became of the reports of a block."""

    codes: NDArray[np.uint8]
    """Places in `OUTCOMES`, shape (n,)."""
    details: dict[Outcome, str]
    """A sentence about one report of each outcome that was refused."""

    def rows(self, *outcomes: Outcome) -> NDArray[np.int64]:
        """Places of the reports with these outcomes."""
        return np.flatnonzero(np.isin(self.codes, [OUTCOMES.index(each) for each in outcomes]))

    def counts(self) -> dict[Outcome, int]:
        """Reports of each outcome."""
        counts = np.bincount(self.codes, minlength=len(OUTCOMES)).tolist()
        return {outcome: count for outcome, count in zip(OUTCOMES, counts, strict=True) if count}


def _matrix(raw: bytes, rows: int) -> NDArray[np.uint8]:
    return np.frombuffer(raw, np.uint8).reshape(rows, -1)
