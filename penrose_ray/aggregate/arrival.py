"""What goes into a shard and what comes back: arrivals, rows, answers, partial sums."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from penrose_ray.types import BatchId, BucketId, ClassId, ReportId
    from penrose_ray.wire import Report

CHECKSUM_BYTES = 32


@dataclass(frozen=True, slots=True)
class Arrival:
    """A report whose class the matcher has named."""

    report_id: ReportId
    class_id: ClassId
    snippet_hash: bytes
    """SHA-256 of signature and parameters, 32 bytes; the column of that name holds its hexadecimal digits."""
    counter_set: int
    created_hour: int
    """Hours since the Unix epoch."""
    signature: bytes
    blob: bytes

    @classmethod
    def of(cls, report: Report, class_id: ClassId, snippet_hash: bytes) -> Self:
        """A report with the class that the matcher found for its signature."""
        return cls(
            report.report_id,
            class_id,
            snippet_hash,
            report.counter_set,
            report.created_hour,
            report.signature,
            report.blob,
        )


class SumKey(NamedTuple):
    """What one sum is over."""

    class_id: ClassId
    counter_set: int
    batch: BatchId


@dataclass(frozen=True, slots=True)
class Row:
    """A report as the journal keeps it: where it lies and which sum it is part of."""

    arrival: Arrival
    bucket: BucketId
    key: SumKey


class Outcome(enum.Enum):
    """What became of a report."""

    ACCEPTED = "accepted"
    KNOWN = "known"
    THINNED = "thinned"
    """Dropped at the published rate of its class; sent again it would be dropped again."""
    REFUSED_TOO_EARLY = "too-early"
    REFUSED_TOO_LATE = "too-late"
    REFUSED_CIPHERTEXT = "ciphertext"
    REFUSED_CAPACITY = "capacity"
    REFUSED_COUNTER_SET = "counter-set"
    REFUSED_BUSY = "busy"
    REFUSED_WRONG_OWNER = "wrong-owner"

    @property
    def acknowledged(self) -> bool:
        """Whether the sender is done with this report and may forget it."""
        return self in (Outcome.ACCEPTED, Outcome.KNOWN, Outcome.THINNED)

    @property
    def send_again(self) -> bool:
        """Whether the same report may be accepted later (busy) or elsewhere (wrong owner)."""
        return self in (Outcome.REFUSED_BUSY, Outcome.REFUSED_WRONG_OWNER)


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one report, with a sentence for the sender."""

    report_id: ReportId
    outcome: Outcome
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PartialSum:
    """One shard's part of the sum of a class, counter set and batch."""

    class_id: ClassId
    counter_set: int
    batch: BatchId
    weight: int
    """Reports in it."""
    blob: bytes
    id_checksum: bytes
    """XOR of the SHA-256 of the ids of these reports, 32 bytes."""
    keep_share: float = 1.0
    """Share of this class' reports that were kept; whoever opens the sum divides by it."""
    ids: tuple[ReportId, ...] = field(default=(), compare=False, repr=False)
    """Ids of these reports, for the ledger and inclusion proofs."""

    @property
    def key(self) -> SumKey:
        """What it is a sum over."""
        return SumKey(self.class_id, self.counter_set, self.batch)
