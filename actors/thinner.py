"""Sheds load: drops reports of frequent classes at rates that all shards share and that releases publish."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penrose_ray.aggregate.thinning import keep_share, shed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from penrose_ray.aggregate.arrival import SumKey
    from penrose_ray.aggregate.service import OpenSums
    from penrose_ray.clock import Clock

_WINDOW_S = 30.0
"""Time over which rates are measured."""


class Shard(Protocol):
    """One shard, wherever it runs."""

    def open_sums(self) -> OpenSums:
        """Weights and keep rates of the sums of open batches."""
        ...

    def thin(self, halvings: Mapping[SumKey, int]) -> None:
        """Keep one report in 2^halvings of these sums from now on."""
        ...


@dataclass(frozen=True, slots=True)
class _Look:
    at_s: float
    weights: Mapping[SumKey, int]


class Thinner:
    """Call `tick` every few seconds. Above `most_per_s` reports a second frequent classes are thinned."""

    def __init__(
        self,
        shards: Callable[[], Sequence[Shard]],
        clock: Clock,
        *,
        most_per_s: float,
        least_per_s: float,
    ) -> None:
        """Watch shards.

        Args:
            shards: those that work now.
            clock: of rates.
            most_per_s: reports a second of the whole service; 0 lets everything in.
            least_per_s: rate below which no class is brought, so that small ones lose nothing.
        """
        self.shards = shards
        self._clock = clock
        self._most_per_s, self._least_per_s = most_per_s, least_per_s
        self._mutex = threading.Lock()
        self._last: _Look | None = None

    def tick(self) -> Mapping[SumKey, int]:
        """Look at the rates and thin; returns the sums that are thinned further than before."""
        if not self._most_per_s:
            return {}
        with self._mutex:
            now_s = self._clock.monotonic_ns() / 1e9
            if self._last and now_s - self._last.at_s < _WINDOW_S:
                return {}
            weights, halvings = self._level()
            more = self._wanted(weights, halvings, now_s)
            if more:
                for shard in self.shards():
                    shard.thin(more)
                weights, _ = self._level()
            self._last = _Look(now_s, weights)
            return more

    @contextmanager
    def levelled(self) -> Iterator[None]:
        """All shards have the same rates meanwhile: a sum that is released has one."""
        with self._mutex:
            self._level()
            yield

    def _level(self) -> tuple[Counter[SumKey], dict[SumKey, int]]:
        """Weights of the whole service, and its rates after those that missed one have caught up."""
        shards = self.shards()
        found = [shard.open_sums() for shard in shards]
        weights: Counter[SumKey] = Counter()
        halvings: dict[SumKey, int] = {}
        for each in found:
            weights.update(each.weights)
            for key, level in each.halvings.items():
                halvings[key] = max(level, halvings.get(key, 0))
        for shard, each in zip(shards, found, strict=True):
            behind = {
                key: level
                for key, level in halvings.items()
                if level > each.halvings.get(key, 0) and key.batch not in each.closed
            }
            if behind:
                shard.thin(behind)
        return weights, halvings

    def _wanted(
        self, weights: Mapping[SumKey, int], halvings: Mapping[SumKey, int], now_s: float
    ) -> dict[SumKey, int]:
        last = self._last
        if last is None:
            return {}
        rates = {
            key: (weight - last.weights.get(key, 0)) / (now_s - last.at_s) / keep_share(halvings.get(key, 0))
            for key, weight in weights.items()
            if weight > last.weights.get(key, 0)
        }
        return shed(rates, halvings, wanted_per_s=self._most_per_s, floor_per_s=self._least_per_s)
