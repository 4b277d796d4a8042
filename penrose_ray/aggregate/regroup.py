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
                for group in core.kept_groups(of_keys(more)):
                    gone = [row for row in group if not kept(row.arrival.report_id, more[row.key])]
                    core.sums.remove(Addends.of(gone))
                for key, level in more.items():
                    change.thin(key, level)
            self._note(more, more)

    def signatures(self, class_id: ClassId) -> dict[bytes, bytes]:
        """The exact signatures in open sums of a class, by snippet hash."""
        core = self._core
        with core.mutex:
            rows = core.journal.rows(of_keys(self._open(class_id)))
            return {row.arrival.snippet_hash: row.arrival.signature for row in rows}

    def _open(self, class_id: ClassId) -> list[SumKey]:
        shard = self._core.shard
        return [key for key in shard.weights if key.class_id == class_id and key.batch not in shard.closed]

    def split(self, class_id: ClassId, classes: Mapping[bytes, ClassId]) -> None:
        """Give the reports of a class in open batches to other classes, by their snippet hash.

        The stored exact signatures decide, never the summed histograms. Hashes that are not named stay. A new
        class takes over the keep rate of the old one: it lost its share of reports at that rate.
        """
        core = self._core
        with core.mutex:
            keys = self._open(class_id)
            touched = set(keys)
            rates: dict[SumKey, int] = {}
            with core.changing() as change:
                for key in keys:
                    halvings = core.halvings.get(key, 0)
                    for new in self._move(change, key, halvings, classes):
                        touched.add(new)
                        rates[new] = max(halvings, core.halvings.get(new, 0))
                for new, halvings in rates.items():
                    change.thin(new, halvings)
            self._note(rates, touched)

    def _move(
        self, change: Change, key: SumKey, halvings: int, classes: Mapping[bytes, ClassId]
    ) -> set[SumKey]:
        """Move rows out of one sum; the sums they went to."""
        core = self._core
        gained: set[SumKey] = set()
        numbered = [
            (arrival, row, _renamed(row, classes)) for arrival, row in core.journal.numbered(of_keys([key]))
        ]
        moved = [each for each in numbered if each[1].key != each[2].key]
        buckets = core.counted()
        counted = [
            (old, new)
            for _, old, new in moved
            if old.bucket in buckets and kept(old.arrival.report_id, halvings)
        ]
        core.sums.remove(Addends.of([old for old, _ in counted]))
        core.sums.add(Addends.of([new for _, new in counted]))
        change.reclass({arrival: new for arrival, _, new in moved})
        gained.update(new.key for _, _, new in moved)
        return gained

    def _note(self, rates: Mapping[SumKey, int], touched: Iterable[SumKey]) -> None:
        self._core.halvings.update(rates)
        self._core.shard.handle(*(Thinned(key, halvings) for key, halvings in rates.items()))
        self._core.reweigh(set(touched))


def _renamed(row: Row, classes: Mapping[bytes, ClassId]) -> Row:
    class_id = classes.get(row.arrival.snippet_hash, row.key.class_id)
    return replace(
        row, arrival=replace(row.arrival, class_id=class_id), key=row.key._replace(class_id=class_id)
    )
