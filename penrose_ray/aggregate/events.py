"""What a shard's state machine is told, and what it asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.aggregate.arrival import Answer, Arrival, Row, SumKey
    from penrose_ray.types import BatchId, BucketId, ReportId


@dataclass(frozen=True, slots=True)
class Offered:
    """A caller brings reports; `request` is the caller's number for the reply."""

    request: int
    arrivals: tuple[Arrival, ...]
    now_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """Which of the ids looked up are in the journal."""

    known: frozenset[ReportId]


@dataclass(frozen=True, slots=True)
class Checked:
    """Faults of the ciphertexts checked, by report id."""

    faults: Mapping[ReportId, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The rows are committed."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The journal could not be read or written: nothing of the group is committed."""

    detail: str


@dataclass(frozen=True, slots=True)
class BatchClosed:
    """A batch is released: what comes late joins the next open one."""

    batch: BatchId


@dataclass(frozen=True, slots=True)
class Placed:
    """The buckets that this shard takes reports for; None is all of them."""

    buckets: frozenset[BucketId] | None


@dataclass(frozen=True, slots=True)
class Pressed:
    """Why no new report can be taken for now, such as a full disk; empty ends it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Reweighed:
    """Sums that changed other than by a report: buckets moved, classes split or thinned."""

    weights: Mapping[SumKey, int]
    """New weights; 0 removes a sum."""


@dataclass(frozen=True, slots=True)
class Thinned:
    """Of a sum, keep one report in 2^halvings from now on; its weight follows as `Reweighed`."""

    key: SumKey
    halvings: int


@dataclass(frozen=True, slots=True)
class Joined:
    """Reports that came as a block were committed."""

    counts: Mapping[SumKey, int]
    """How many joined each sum."""


Event = (
    Offered
    | Found
    | Checked
    | Recorded
    | Failed
    | BatchClosed
    | Placed
    | Pressed
    | Reweighed
    | Thinned
    | Joined
)


@dataclass(frozen=True, slots=True)
class Look:
    """Look these ids up in the journal, answer with `Found` or `Failed`."""

    ids: tuple[ReportId, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """Check these reports' ciphertexts, answer with `Checked`."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Commit these rows in one transaction, answer with `Recorded` or `Failed`."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Add:
    """Add these committed rows to their sums."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a caller: one answer per arrival, in the order offered."""

    request: int
    answers: tuple[Answer, ...]


Instruction = Look | Check | Record | Add | Reply
