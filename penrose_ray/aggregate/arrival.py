"""What goes into a shard and what comes back: arrivals, rows, answers, partial sums."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penrose_ray.types import BatchId, BucketId, ClassId, ReportId

SNIPPET_HASH_BYTES = 32


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


class SumKey(NamedTuple):
    """What one sum is over."""

    class_id: ClassId
    counter_set: int
    batch: BatchId


@dataclass(frozen=True, slots=True)
class Row:
    """A report as the journal keeps it."""

    arrival: Arrival
    bucket: BucketId
    batch: BatchId

    @property
    def key(self) -> SumKey:
        """The sum that this report is part of."""
        return SumKey(self.arrival.class_id, self.arrival.counter_set, self.batch)


class Outcome(enum.Enum):
    """What became of a report.

    `ACCEPTED` and `KNOWN` are acknowledgements, for ever; the others are final refusals, but for
    `REFUSED_BUSY`, after which the client sends again.
    """

    ACCEPTED = "accepted"
    KNOWN = "known"
    REFUSED_TOO_EARLY = "too-early"
    REFUSED_TOO_LATE = "too-late"
    REFUSED_CIPHERTEXT = "ciphertext"
    REFUSED_CAPACITY = "capacity"
    REFUSED_COUNTER_SET = "counter-set"
    REFUSED_BUSY = "busy"

    @property
    def acknowledged(self) -> bool:
        """Whether the report is in the journal."""
        return self in (Outcome.ACCEPTED, Outcome.KNOWN)


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
