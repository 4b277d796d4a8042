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
from penrose_ray.aggregate.sums import Addends
from penrose_ray.types import BatchId, ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

HASH_BYTES: Final = 32
OUTCOMES: Final = tuple(Outcome)
"""An outcome's place is its code in `BlockAnswer`."""


@dataclass(frozen=True, eq=False, slots=True)
class Block:
    """n reports that were created in the same hour, of k exact signatures."""

    created_hour: int
    class_id: NDArray[np.uint8]
    """Class that each signature belongs to, shape (k, 16)."""
    snippet_hash: NDArray[np.uint8]
    """Shape (k, 32)."""
    signature: NDArray[np.uint8]
    """Shape (k, bytes of a signature)."""
    kind: NDArray[np.int64]
    """Place of each report's signature, shape (n,)."""
    counter_set: NDArray[np.int64]
    """Shape (n,)."""
    report_id: NDArray[np.uint8]
    """Shape (n, 32)."""
    blobs: NDArray[np.uint8]
    """Shape (n, bytes of a blob)."""

    def __len__(self) -> int:
        return len(self.kind)

    @classmethod
    def of(cls, arrivals: Sequence[Arrival]) -> Block:
        """These arrivals, of one hour, as a block."""
        kinds = [(each.class_id, each.snippet_hash, each.signature) for each in arrivals]
        places = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
        class_id, snippet_hash, signature = zip(*places, strict=True)
        return cls(
            arrivals[0].created_hour,
            matrix(b"".join(class_id), len(places)),
            matrix(b"".join(snippet_hash), len(places)),
            matrix(b"".join(signature), len(places)),
            np.array([places[kind] for kind in kinds], np.int64),
            np.array([each.counter_set for each in arrivals], np.int64),
            matrix(b"".join(each.report_id for each in arrivals), len(arrivals)),
            matrix(b"".join(each.blob for each in arrivals), len(arrivals)),
        )

    def part(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Block:
        """Some of these reports, with their signatures only."""
        used, kind = np.unique(self.kind[rows], return_inverse=True)
        return Block(
            self.created_hour,
            self.class_id[used],
            self.snippet_hash[used],
            self.signature[used],
            kind,
            self.counter_set[rows],
            self.report_id[rows],
            self.blobs[rows],
        )

    def ids(self) -> list[ReportId]:
        """Report ids in order."""
        return [ReportId(each) for each in _pieces(self.report_id)]

    def keys(self, batch: BatchId) -> list[SumKey]:
        """The sum that each report joins."""
        class_ids = [ClassId(each) for each in _pieces(self.class_id)]
        pairs = zip(self.kind.tolist(), self.counter_set.tolist(), strict=True)
        return [SumKey(class_ids[kind], counter_set, batch) for kind, counter_set in pairs]

    def groups(self, batch: BatchId) -> dict[SumKey, list[int]]:
        """Places of the reports of each sum."""
        found: dict[SumKey, list[int]] = {}
        for at, key in enumerate(self.keys(batch)):
            found.setdefault(key, []).append(at)
        return found

    def addends(self, batch: BatchId) -> Addends:
        """As they are added up."""
        return Addends(self.groups(batch), self.ids(), _pieces(self.blobs))

    def arrivals(self) -> list[Arrival]:
        """The same, one by one."""
        kinds = list(
            zip(_pieces(self.class_id), _pieces(self.snippet_hash), _pieces(self.signature), strict=True)
        )
        columns = zip(
            self.ids(), self.kind.tolist(), self.counter_set.tolist(), _pieces(self.blobs), strict=True
        )
        found = []
        for report_id, kind, counter_set, blob in columns:
            class_id, snippet_hash, signature = kinds[kind]
            hour = self.created_hour
            found.append(
                Arrival(report_id, ClassId(class_id), snippet_hash, counter_set, hour, signature, blob)
            )
        return found

    def rows(self, batch: BatchId) -> list[Row]:
        """The same as the journal keeps them one by one."""
        pairs = zip(self.arrivals(), self.keys(batch), strict=True)
        return [Row(each, bucket_of(each.report_id), key) for each, key in pairs]

    def counter_sets_by_snippet(self) -> str:
        """JSON: snippet hash in hexadecimal digits -> the counter sets of its reports, one a report."""
        by_kind = self.counter_set[np.argsort(self.kind, kind="stable")].tolist()
        digits = self.snippet_hash.tobytes().hex()
        entries, at = [], 0
        for kind, count in enumerate(np.bincount(self.kind, minlength=len(self.snippet_hash)).tolist()):
            name = digits[2 * HASH_BYTES * kind : 2 * HASH_BYTES * (kind + 1)]
            entries.append(f'"{name}":{by_kind[at : at + count]}')
            at += count
        return f"{{{','.join(entries)}}}"

    def encode(self, batch: BatchId) -> bytes:
        """The journal's record."""
        record = _Record(
            batch,
            self.created_hour,
            self.class_id.tobytes(),
            self.snippet_hash.tobytes(),
            self.signature.tobytes(),
            self.kind.astype("<u4").tobytes(),
            self.counter_set.astype("<u4").tobytes(),
            self.report_id.tobytes(),
            self.blobs.tobytes(),
        )
        return msgspec.msgpack.encode(record)


class _Record(msgspec.Struct, frozen=True, array_like=True):
    batch: int
    created_hour: int
    class_id: bytes
    snippet_hash: bytes
    signature: bytes
    kind: bytes
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
    count, kinds = len(found.report_id) // ID_BYTES, len(found.snippet_hash) // HASH_BYTES
    block = Block(
        found.created_hour,
        matrix(found.class_id, kinds),
        matrix(found.snippet_hash, kinds),
        matrix(found.signature, kinds),
        np.frombuffer(found.kind, "<u4").astype(np.int64),
        np.frombuffer(found.counter_set, "<u4").astype(np.int64),
        matrix(found.report_id, count),
        matrix(found.blobs, count),
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


def matrix(raw: bytes, rows: int) -> NDArray[np.uint8]:
    """Bytes as so many rows."""
    return np.frombuffer(raw, np.uint8).reshape(rows, -1)


def _pieces(columns: NDArray[np.uint8]) -> list[bytes]:
    raw, width = columns.tobytes(), columns.shape[1]
    return [raw[at : at + width] for at in range(0, len(raw), width)]
