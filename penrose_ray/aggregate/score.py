"""How warm a sum is: a decayed access score that says where it lies.

Each hour the score becomes 0.95 of itself, plus 0.05 if the sum was used in that hour. Left alone, a new sum
is hot for 5 hours (memory), warm until hour 24 (journal), then cold (archive).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

ALPHA: Final = 0.95
HOT: Final = 0.8
WARM: Final = 0.3
KEPT_DAYS: Final = 90


class Tier(enum.Enum):
    """Where a sum lies."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"


@dataclass(frozen=True, slots=True)
class Score:
    """Access score, 0 to 1, as it was at the start of `hour` (hours since the epoch)."""

    value: float
    hour: int
    used: bool = False
    """Whether the sum was used in that hour."""

    def at(self, hour: int) -> Score:
        """The score at the start of a later hour; an earlier one (a clock set back) changes nothing."""
        hours = hour - self.hour
        if hours <= 0:
            return self
        first = ALPHA * self.value + (1 - ALPHA) * self.used
        return Score(first * ALPHA ** (hours - 1), hour)

    def touched(self, hour: int) -> Score:
        """The score after a use in `hour`."""
        if self.used and self.hour == hour:
            return self
        now = self.at(hour)
        return now if now.used else Score(now.value, now.hour, used=True)

    def tier(self, hour: int) -> Tier:
        """Where the sum belongs in `hour`."""
        value = self.at(hour).value
        return Tier.HOT if value >= HOT else Tier.WARM if value >= WARM else Tier.COLD


def fresh(hour: int) -> Score:
    """The score of a new sum."""
    return Score(1.0, hour, used=True)
