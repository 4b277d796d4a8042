"""Sub-batches: one class' reports in several sums, so that a hostile client spoils one of them and no more.

With h hostile clients and c tokens each, at most h c sums are spoiled. While these are fewer than half, the
median of the sums' means lies within the range of the clean ones (median of means; Lugosi and Mendelson
2019). A share of hostile clients, 1 % say, spoils every sum of a few hundred reports: against that only
range proofs would help, which reports do not carry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.task import Task


class _Weighted(Protocol):
    @property
    def weight(self) -> int: ...


P = TypeVar("P", bound=_Weighted)


def bundled(task: Task, parts: Sequence[P], classes: int = 1) -> list[list[P]]:
    """Parts by ciphertext: as many sub-batches as the task asks for and the gate allows."""
    total, needed = sum(part.weight for part in parts), task.reports_needed(classes)
    for count in range(min(task.sub_batches, len(parts), total // needed), 1, -1):
        bundles = _balanced(parts, count)
        weights = [sum(part.weight for part in bundle) for bundle in bundles]
        if min(weights) >= needed and max(weights) <= task.capacity():
            return bundles
    return _first_fit(parts, task.capacity())


def _balanced(parts: Sequence[P], count: int) -> list[list[P]]:
    """The largest first, each into the lightest bundle."""
    bundles: list[list[P]] = [[] for _ in range(count)]
    weights = [0] * count
    for part in sorted(parts, key=lambda each: -each.weight):
        lightest = weights.index(min(weights))
        bundles[lightest].append(part)
        weights[lightest] += part.weight
    return bundles


def _first_fit(parts: Sequence[P], capacity: int) -> list[list[P]]:
    """The largest first, each where it still fits."""
    bundles: list[list[P]] = []
    for part in sorted(parts, key=lambda each: -each.weight):
        for bundle in bundles:
            if sum(one.weight for one in bundle) + part.weight <= capacity:
                bundle.append(part)
                break
        else:
            bundles.append([part])
    return bundles
