"""When uploads happen: at moments that say nothing about when there was something to send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random


@dataclass(frozen=True, slots=True)
class Pace:
    """Moments of a Poisson process, one report each.

    Exponential gaps have no memory: some of a client's uploads say nothing about the next one, and clients
    that start together have a phase of their own from the first report on.
    """

    mean_gap_s: float = 300.0

    def gap_s(self, rng: random.Random) -> float:
        """Seconds to the next moment."""
        return rng.expovariate(1 / self.mean_gap_s)
