"""Which launches are measured: one in S, without bias, and which counters are watched meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penrose_ray.clock import Clock

_NS_PER_S = 1_000_000_000


class Sampler:
    """Draws launch numbers, on average one in `interval`, each launch with the same probability.

    `jitter` draws every gap from U[1, 2S-1], so no period of the program can hide a kernel from it. `paper`
    keeps the stride S and draws a new offset every `offset_reset_s` seconds: a program whose step has k
    launches then shows only k / gcd(S, k) of them until the next reset.

    Args:
        interval: S.
        mode: `jitter` or `paper`.
        offset_reset_s: O, of `paper`.
        rng: source of all draws.
        clock: for the resets.
    """

    def __init__(
        self,
        *,
        interval: int,
        rng: np.random.Generator,
        clock: Clock,
        mode: Literal["jitter", "paper"] = "jitter",
        offset_reset_s: float = 600,
    ) -> None:
        if interval < 1:
            raise ConfigError(f"Sampling interval {interval}: it is 1 or more.", remedy="Correct the task.")
        self._interval = interval
        self._mode = mode
        self._reset_ns = round(offset_reset_s * _NS_PER_S)
        self._rng = rng
        self._clock = clock
        self._scheduled = 0
        self._next = self._first_offset()
        self._reset_at_ns = clock.monotonic_ns() + self._reset_ns

    def _first_offset(self) -> int:
        """Distance of the first sample from a point chosen blindly.

        For gaps U[1, n] the distance j has a probability proportional to n - j (the residual life of a
        renewal process), which the lesser of two distinct numbers of 0 to n has too.
        """
        if self._mode == "paper":
            return int(self._rng.integers(self._interval))
        return int(self._rng.choice(2 * self._interval, size=2, replace=False, shuffle=False).min())

    def schedule(self, up_to: int) -> NDArray[np.uint64]:
        """The launches to measure from the end of the last schedule to below `up_to`, ascending."""
        if self._mode == "paper" and self._clock.monotonic_ns() >= self._reset_at_ns:
            self._next = self._scheduled + self._first_offset()
            self._reset_at_ns = self._clock.monotonic_ns() + self._reset_ns
        parts: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        while self._next < up_to:
            drawn = self._next + np.concatenate(([0], np.cumsum(self._gaps(up_to - self._next))))
            parts.append(drawn[drawn < up_to][: len(drawn) - 1])
            self._next = int(drawn[len(parts[-1])])
        self._scheduled = max(self._scheduled, up_to)
        return np.concatenate(parts).astype(np.uint64)

    def _gaps(self, distance: int) -> NDArray[np.int64]:
        count = distance // self._interval + 1
        if self._mode == "paper":
            return np.full(count, self._interval, dtype=np.int64)
        return self._rng.integers(1, 2 * self._interval, size=count)


class Rotation:
    """Groups of counter sets that take turns, each for `rotation_s` seconds of wall time.

    Args:
        groups: names of the counter sets of each group.
        rotation_s: length of a turn.
        clock: wall time.
        phase: added to the turn's number; drawn at random by each client, it spreads the groups.
    """

    def __init__(
        self, groups: Sequence[tuple[str, ...]], *, rotation_s: float, clock: Clock, phase: int = 0
    ) -> None:
        if not groups:
            raise ConfigError("No group of counter sets to rotate.", remedy="Correct the task's rotation.")
        self._groups = tuple(groups)
        self._rotation_s = rotation_s
        self._clock = clock
        self._phase = phase

    def current(self) -> tuple[str, ...]:
        """The group whose turn it is."""
        turn = int(self._clock.now_s() // self._rotation_s) + self._phase
        return self._groups[turn % len(self._groups)]
