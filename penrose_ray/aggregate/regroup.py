"""Sums that change shape: thinned under load, classes split or merged."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penrose_ray.aggregate.entries import of_keys
from penrose_ray.aggregate.events import Thinned
from penrose_ray.aggregate.sums import Addends
from penrose_ray.aggregate.thinning import kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penrose_ray.aggregate.arrival import Row, SumKey
    from penrose_ray.aggregate.change import Change
    from penrose_ray.aggregate.core import Core
    from penrose_ray.types import ClassId


class Regroup:
    """Changes of open sums by their stored rows; every call may be repeated."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def thin(self, halvings: Mapping[SumKey, int]) -> None:
        """Keep one report in 2^halvings of these sums, those already in them included.

        Every shard must be given the same rates before the sums are released.

        Raises:
            ValueError: a rate would rise, or a batch is released; nothing has changed.
        """
        core = self._core
        with core.mutex:
            more = {key: level for key, level in halvings.items() if level != core.halvings.get(key, 0)}
            for key, level in more.items():
                before = core.halvings.get(key, 0)
                if level < before or key.batch in core.shard.closed:
                    raise ValueError(f"{key} has {before} halvings or is released, {level} asked")
            if not more:
                return
            with core.changing() as change:
                self._raise(change, more)
            self._note(more, more)

    def _raise(self, change: Change, levels: Mapping[SumKey, int]) -> None:
        """Take out of these sums what is not kept at their new rates, and note the rates."""
        for group in self._core.kept_groups(of_keys(levels)):
            gone = [row for row in group if not kept(row.arrival.report_id, levels[row.key])]
            self._core.sums.remove(Addends.of(gone))
        for key, level in levels.items():
            change.thin(key, level)

    def signatures(self, class_id: ClassId) -> dict[bytes, bytes]:
        """The exact signatures in open sums of a class, by snippet hash."""
        core = self._core
        with core.mutex:
            rows = core.journal.rows(of_keys(self._open(class_id)))
            return {row.arrival.snippet_hash: row.arrival.signature for row in rows}

    def _open(self, class_id: ClassId) -> list[SumKey]:
        """Sums that hold reports, or whose reports are all thinned out: those may count elsewhere."""
        shard = self._core.shard
        keys = {*shard.weights, *shard.thinned}
        return [key for key in keys if key.class_id == class_id and key.batch not in shard.closed]

    def split(self, class_id: ClassId, classes: Mapping[bytes, ClassId]) -> None:
        """Give the reports of a class in open batches to other classes, by their snippet hash.

        The stored exact signatures decide, never the summed histograms. Hashes that are not named stay. A sum
        that gets reports has the keep rate of the old class from then on, where that is the lower one: the
        old class lost its share of reports at that rate.
        """
        core = self._core
        with core.mutex:
            touched = set(self._open(class_id))
            rates: dict[SumKey, int] = {}
            with core.changing() as change:
                for key in sorted(touched):
                    gained, raised = self._move(change, key, classes)
                    touched |= gained
                    rates |= raised
            self._note(rates, touched)

    def _move(
        self, change: Change, key: SumKey, classes: Mapping[bytes, ClassId]
    ) -> tuple[set[SumKey], dict[SumKey, int]]:
        """Move rows out of one sum; the sums they went to, and those whose keep rate fell."""
        core, buckets = self._core, self._core.counted()
        before = core.halvings.get(key, 0)
        numbered = [
            (arrival, row, _renamed(row, classes)) for arrival, row in core.journal.numbered(of_keys([key]))
        ]
        moved = [each for each in numbered if each[1].key != each[2].key]
        levels = {new.key: max(before, core.halvings.get(new.key, 0)) for _, _, new in moved}
        raised = {new: level for new, level in levels.items() if level > core.halvings.get(new, 0)}
        self._raise(change, raised)
        counted = [(old, new) for _, old, new in moved if old.bucket in buckets]
        core.sums.remove(Addends.of([old for old, _ in counted if kept(old.arrival.report_id, before)]))
        core.sums.add(Addends.of([new for _, new in counted if kept(new.arrival.report_id, levels[new.key])]))
        change.reclass({arrival: new for arrival, _, new in moved})
        return set(levels), raised

    def _note(self, rates: Mapping[SumKey, int], touched: Iterable[SumKey]) -> None:
        self._core.halvings.update(rates)
        self._core.shard.handle(*(Thinned(key, halvings) for key, halvings in rates.items()))
        self._core.reweigh(set(touched))


def _renamed(row: Row, classes: Mapping[bytes, ClassId]) -> Row:
    class_id = classes.get(row.arrival.snippet_hash, row.key.class_id)
    return replace(
        row, arrival=replace(row.arrival, class_id=class_id), key=row.key._replace(class_id=class_id)
    )
