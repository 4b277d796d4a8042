"""When uploads happen: at moments that say nothing about when there was something to send."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random

_CLOSING_MOST_S: Final = 12 * 3600.0
_ASKING_MOST_S: Final = 6 * 3600.0
_ASKING_AT_ONCE_S: Final = 900.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Moments of a Poisson process, one report each.

    Exponential gaps have no memory: some of a client's uploads say nothing about the next one, and clients
    that start together have a phase of their own from the first report on.
    """

    mean_gap_s: float = 300.0
    """0 sends at once."""

    def gap_s(self, rng: random.Random) -> float:
        """Seconds to the next moment."""
        return rng.expovariate(1 / self.mean_gap_s) if self.mean_gap_s else 0.0


def closing_window_s(batch_s: float) -> float:
    """Seconds after a batch's end within which each client begins to send its reports, r > 0.

    Half a batch, so that the peak of a fleet is twice its mean; at most 12 h, so that of the 36 h in which
    the service takes a late report a day is left for outages.
    """
    return min(batch_s / 2, _CLOSING_MOST_S)


def asking_window_s(batch_s: float, reports_per_class: int) -> float:
    """Seconds after midnight UTC within which each client asks for the day's tokens.

    With r > 0 they are needed at the end of a batch; with r = 0 as soon as a histogram is full.
    """
    return min(batch_s / 4, _ASKING_MOST_S) if reports_per_class else _ASKING_AT_ONCE_S
