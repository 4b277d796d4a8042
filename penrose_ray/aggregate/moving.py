"""Buckets that move between shards while reports arrive.

The old owner seals them (its state machine refuses their reports from then on), the new owner copies them
page by page, the directory stores the new placement, and both settle to it. Until then the copy counts for
nothing; afterwards the old rows do. Whatever was interrupted, settling to the directory's word puts it right.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.core import INCOMING, OWNED, SEALED
from penrose_ray.aggregate.entries import of_buckets
from penrose_ray.aggregate.events import BatchClosed, Placed
from penrose_ray.aggregate.sums import Addends
from penrose_ray.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Collection

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.aggregate.core import Core
    from penrose_ray.types import BatchId, BucketId

_PAGE: Final = 1000
_COMPLETE: Final = -1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A page of the reports of some buckets; `epoch` is that of the attempt to move them."""

    epoch: int
    buckets: frozenset[BucketId]
    after: int
    rows: tuple[Row, ...]
    following: int | None
    """`after` of the next page, None for the last one."""
    released: tuple[tuple[BatchId, float], ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """The directory's word: these buckets are yours, and no others.

    `epoch` is the last one that any attempt to move buckets has used.
    """

    epoch: int
    buckets: frozenset[BucketId]


class StalePlacementError(RuntimeError):
    """A message of an older epoch, or out of turn, came late; nothing has changed."""


class Moves:
    """The shard's side of a move; every call may be repeated."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def seal(self, buckets: Collection[BucketId], *, epoch: int) -> None:
        """Refuse reports of these buckets from now on, until `settle` says otherwise.

        Raises:
            StalePlacementError: this attempt to move them is over.
        """
        core = self._core
        with core.mutex:
            self._refuse_past(epoch)
            with core.journal.change() as change:
                change.place(dict.fromkeys(buckets, SEALED))
                change.note("seen_epoch", epoch)
            core.shard.handle(Placed(core.owned()))

    def export(
        self, buckets: Collection[BucketId], *, epoch: int, after: int = 0, most: int = _PAGE
    ) -> Snapshot:
        """The next page, of up to `most` reports, of these sealed buckets.

        Raises:
            StalePlacementError: one of them is not sealed.
        """
        core = self._core
        with core.mutex:
            states = core.journal.buckets()
            if any(states.get(bucket) != SEALED for bucket in buckets):
                raise StalePlacementError("a bucket that is not sealed cannot be copied")
            numbered = core.journal.numbered(of_buckets(buckets), after=after)
            page = list(itertools.islice(numbered, most))
            following = page[-1][0] if len(page) == most else None
            rows = tuple(row for _, row in page)
            return Snapshot(
                epoch, frozenset(buckets), after, rows, following, tuple(core.journal.released().items())
            )

    def receive(self, snapshot: Snapshot) -> None:
        """Keep a page of buckets that may become this shard's; they count for nothing yet.

        Raises:
            StalePlacementError: the page is of a past epoch, of a bucket kept here, or out of turn.
        """
        core = self._core
        with core.mutex:
            self._refuse_past(snapshot.epoch)
            states = core.journal.buckets()
            if any(states.get(bucket, INCOMING) != INCOMING for bucket in snapshot.buckets):
                raise StalePlacementError("a bucket that is kept here cannot come in")
            if self._is_repeat(snapshot):
                return
            with core.journal.change() as change:
                if snapshot.after == 0:
                    change.delete_buckets(snapshot.buckets)
                change.place(dict.fromkeys(snapshot.buckets, INCOMING))
                change.insert(snapshot.rows)
                change.note("incoming_epoch", snapshot.epoch)
                change.note("seen_epoch", snapshot.epoch)
                change.note("incoming_after", _COMPLETE if snapshot.following is None else snapshot.following)
                for batch, released_s in snapshot.released:
                    change.release(batch, released_s)
            core.shard.handle(*(BatchClosed(batch) for batch, _ in snapshot.released))

    def _refuse_past(self, epoch: int) -> None:
        """Attempts follow one another: a later one, or settling, ends an attempt."""
        settled, seen = self._core.journal.epoch(), self._core.journal.number("seen_epoch")
        if epoch <= settled or epoch < seen:
            raise StalePlacementError(f"epoch {epoch} is over: {settled} is settled, {seen} has begun")

    def _is_repeat(self, snapshot: Snapshot) -> bool:
        journal = self._core.journal
        if journal.number("incoming_epoch") != snapshot.epoch:
            due = 0
        else:
            due = journal.number("incoming_after")
            if due == _COMPLETE or snapshot.after < due:
                return True
        if snapshot.after != due:
            raise StalePlacementError(f"the page after {snapshot.after} came, the one after {due} is due")
        return False

    def settle(self, placement: Placement) -> None:
        """Take over what is ours, drop what another shard has, take reports accordingly.

        Raises:
            StalePlacementError: a newer placement has been settled already.
            JournalError: reports would be lost: a bucket to drop was never sealed, so nobody has copied it.
        """
        core = self._core
        with core.mutex:
            seen = core.journal.number("seen_epoch")
            if placement.epoch < seen:
                raise StalePlacementError(f"placement {placement.epoch} came late: {seen} has begun")
            states = core.journal.buckets()
            gained = {bucket for bucket in placement.buckets if states.get(bucket) == INCOMING}
            dropped = {bucket for bucket in states if bucket not in placement.buckets}
            if gained and core.journal.number("incoming_after") != _COMPLETE:
                raise StalePlacementError(f"placement {placement.epoch} came before the copy was complete")
            self._refuse_loss(placement, states)
            touched = self._rewrite(placement, gained, dropped, states)
            core.shard.handle(Placed(placement.buckets))
            core.reweigh(touched)

    def _refuse_loss(self, placement: Placement, states: dict[BucketId, str]) -> None:
        core = self._core
        safe = placement.buckets | {bucket for bucket, state in states.items() if state in (SEALED, INCOMING)}
        if held := core.journal.buckets_with_rows() - safe:
            raise JournalError(
                f"Placement {placement.epoch} would drop {len(held)} buckets of {core.journal.path} that no "
                "other shard has copied.",
                remedy="Give the directory back its table, or empty this shard first.",
            )

    def _rewrite(
        self,
        placement: Placement,
        gained: Collection[BucketId],
        dropped: Collection[BucketId],
        states: dict[BucketId, str],
    ) -> set[SumKey]:
        core = self._core
        counted = [bucket for bucket in dropped if states[bucket] != INCOMING]
        touched: set[SumKey] = set()
        with core.changing() as change:
            for buckets, apply in ((gained, core.sums.add), (counted, core.sums.remove)):
                for group in core.groups(of_buckets(buckets)):
                    rows = [row for row in group if core.is_kept(row)]
                    apply(Addends.of(rows))
                    touched.update(row.key for row in rows)
            change.delete_buckets(dropped)
            change.place(dict.fromkeys(placement.buckets, OWNED) | dict.fromkeys(dropped))
            change.note("epoch", placement.epoch)
            change.note("seen_epoch", placement.epoch)
        return touched
