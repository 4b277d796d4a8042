"""What a shard does from time to time: store sums, delete what is old, archive what is cold."""

from __future__ import annotations

import contextlib
import shutil
import time
from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.arrival import PartialSum
from penrose_ray.aggregate.events import Pressed
from penrose_ray.aggregate.score import KEPT_DAYS, Tier
from penrose_ray.aggregate.thinning import keep_share
from penrose_ray.errors import JournalError
from penrose_ray.telemetry import (
    ARCHIVED_BATCHES,
    BUCKETS,
    DISK_FREE_BYTES,
    DISK_MARK_BYTES,
    PURGED_BATCHES,
    SUMS,
    THINNED_SUMS,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penrose_ray.aggregate.archive import Archive
    from penrose_ray.aggregate.core import Core
    from penrose_ray.aggregate.rows import SumRecord
    from penrose_ray.types import BatchId

CHECKPOINT_REPORTS: Final = 10_000
CHECKPOINT_S: Final = 60
ROWS_KEPT_S: Final = 48 * 3600
_LATE_S: Final = 48 * 3600
_HOUR_S: Final = 3600
_DAY_S: Final = 86_400
_DELETE: Final = 50_000
_GIVE_WAY_S: Final = 0.001
REPORTS_A_SUM: Final = 32
"""Reports between two times that a sum is stored, on average: it costs as much as taking two reports. Opening
a journal after a crash adds up to so many a sum again: 8 s for 10,000 sums."""


class Upkeep:
    """Due work of one shard; every call may be repeated."""

    def __init__(self, core: Core, archive: Archive | None, *, disk_mark_bytes: int = 0) -> None:
        self._core, self._archive = core, archive
        self._disk_mark_bytes = disk_mark_bytes
        self._reports = 0
        self._checkpoint_s = core.clock.now_s()
        self._purge_s = float("-inf")
        self._handed_over: frozenset[BatchId] = frozenset()
        self._is_shrunk = False
        """Whether nothing deleted is on the disk; a process that was killed may have left some."""
        self.free_bytes: Callable[[], int] = lambda: shutil.disk_usage(core.journal.path.parent).free
        self.give_way: Callable[[], object] = lambda: time.sleep(_GIVE_WAY_S)
        """Called between two steps of a purge: whoever waits for the mutex gets it."""

    def note_handed_over(self, batches: Iterable[BatchId]) -> None:
        """The hand-overs of these batches are on disk: nobody needs their rows again. Not kept on disk."""
        self._handed_over = frozenset(batches)

    def after(self, reports: int) -> None:
        """Count reports taken; every 10,000 of them, or 32 a sum where that is more, sums are stored."""
        with self._core.mutex:
            self._reports += reports
            if self._reports >= max(CHECKPOINT_REPORTS, REPORTS_A_SUM * len(self._core.sums)):
                with contextlib.suppress(JournalError):  # the reports are safe; the next one meets the error
                    self.checkpoint()

    def tick(self) -> None:
        """Do what is due: watch the disk, store the sums every 60 s, delete old rows every hour.

        Raises:
            JournalError: the journal cannot be written.
        """
        with self._core.mutex:
            now_s = self._core.clock.now_s()
            free_bytes = self.free_bytes()
            self._gauge(free_bytes)
            short = free_bytes < self._disk_mark_bytes
            self.press(
                f"the disk has {free_bytes} bytes left, {self._disk_mark_bytes} are kept" if short else ""
            )
            if now_s - self._checkpoint_s >= CHECKPOINT_S:
                self.checkpoint()
            purges = now_s - self._purge_s >= _HOUR_S
        if purges:
            self.purge()

    def _gauge(self, free_bytes: int) -> None:
        core = self._core
        DISK_FREE_BYTES.set(free_bytes)
        DISK_MARK_BYTES.set(self._disk_mark_bytes)
        SUMS.set(len(core.shard.weights))
        BUCKETS.set(len(core.owned()))
        THINNED_SUMS.set(sum(1 for key in core.halvings if key.batch not in core.shard.closed))

    def checkpoint(self) -> None:
        """Store the sums, so that opening the journal need not add up what they hold.

        Raises:
            JournalError: they could not be stored; nothing is lost.
        """
        core = self._core
        with core.mutex:
            core.refresh()
            changed, gone = core.sums.changed()
            if changed or gone:
                with core.journal.change() as change:
                    change.put_sums(changed, gone)
            core.sums.note_stored()
            self._reports, self._checkpoint_s = 0, core.clock.now_s()

    def press(self, reason: str) -> None:
        """Take no new reports while `reason` is not empty; known ones are acknowledged as ever."""
        with self._core.mutex:
            self._core.shard.handle(Pressed(reason))

    def purge(self) -> int:
        """Delete reports of batches released 48 hours ago or earlier, ids and signatures included.

        Reports are taken meanwhile. An id that goes has been kept 48 hours or more, and a retry is refused by
        its age after 36. What is not handed over keeps its rows. While buckets move nothing is deleted: the
        other shard adds up, or takes out of its sums, the rows that it has in common with this one.

        Returns:
            How many batches lost their rows or, after 90 days, their sums.
        """
        core = self._core
        with core.mutex:
            now_s = core.clock.now_s()
            released = core.journal.released()
            old = {
                batch
                for batch in self._handed_over & released.keys()
                if now_s - released[batch] >= ROWS_KEPT_S
            }
            due = core.journal.batches_with_rows() & old
        if not all(self._delete_rows(batch) for batch in due):
            return 0
        with core.mutex:
            expired = [batch for batch in released if self._is_expired(batch, released[batch], now_s)]
            for batch in expired:
                self._expire(batch)
            self._is_shrunk = core.journal.shrink() if due or expired or not self._is_shrunk else True
            PURGED_BATCHES.add(len(due))
            self._purge_s = now_s
            return len(due) + len(expired)

    def _delete_rows(self, batch: BatchId) -> bool:
        """Delete in steps; False when buckets move, and some rows are left."""
        self.checkpoint()
        after: int | None = 0
        while after is not None:
            with self._core.mutex:
                if self._core.is_moving():
                    return False
                with self._core.changing() as change:
                    after = change.delete_batch(batch, _DELETE, after=after)
                    change.note("purging", 0 if after is None else batch + 1)
            self.give_way()
        return True

    def _is_expired(self, batch: BatchId, released_s: float, now_s: float) -> bool:
        ended_s = (batch + 1) * self._core.task.batch_s
        is_late = now_s - released_s >= KEPT_DAYS * _DAY_S and now_s - ended_s >= _LATE_S
        return is_late and batch in self._handed_over

    def _expire(self, batch: BatchId) -> None:
        core = self._core
        if (place := core.journal.archived().get(batch)) and self._archive:
            self._archive.delete(place[0])
        with core.journal.change() as change:
            change.forget_batch(batch)
            change.forget_release(batch)
        core.forget_batch(batch)

    def compact(self) -> list[BatchId]:
        """Move released batches whose sums are all cold and whose rows are gone into the archive.

        One that is there already stays where it is: what has come with a bucket since is kept in the journal.

        Returns:
            The batches moved.

        Raises:
            JournalError: there is no archive, or it does not give back what was written.
        """
        core = self._core
        with core.mutex:
            self.checkpoint()
            kept = core.journal.batches_with_rows() | core.journal.archived().keys()
            cold = [batch for batch in core.journal.released() if batch not in kept and self._is_cold(batch)]
            for batch in cold:
                self._move_out(batch)
            if cold:
                self._is_shrunk = core.journal.shrink()
            return cold

    def _is_cold(self, batch: BatchId) -> bool:
        records = self._stored(batch)
        hour = self._core.hour()
        return bool(records) and all(each.score.tier(hour) is Tier.COLD for each in records)

    def _stored(self, batch: BatchId) -> list[SumRecord]:
        keys = sorted(key for key in self._core.shard.weights if key.batch == batch)
        return [record for key in keys if (record := self._core.journal.sum(key))]

    def _move_out(self, batch: BatchId) -> None:
        core, records = self._core, self._stored(batch)
        archive = self._need_archive(batch)
        file = archive.write(core.task.task_id, core.journal.path.stem, batch, records)
        if archive.read(file) != records:
            raise JournalError(
                f"The archive file {file} is not what was written.",
                remedy="Check the archive's disk or service.",
            )
        with core.journal.change() as change:
            change.archive(batch, file, core.clock.now_s())
        ARCHIVED_BATCHES.add()
        core.forget_batch(batch)

    def archived(self, batch: BatchId) -> list[PartialSum]:
        """Sums of a batch from the archive; none when it is not there."""
        place = self._core.journal.archived().get(batch)
        if place is None:
            return []
        return [
            PartialSum(
                *record.key,
                record.weight,
                record.blob,
                record.id_checksum,
                keep_share(self._core.halvings.get(record.key, 0)),
            )
            for record in self._need_archive(batch).read(place[0])
        ]

    def _need_archive(self, batch: BatchId) -> Archive:
        if self._archive is None:
            raise JournalError(
                f"Batch {batch} of {self._core.journal.path} needs an archive, and none is configured.",
                remedy="Set the archive's address.",
            )
        return self._archive
