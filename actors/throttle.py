"""The gateway's throttle: under heavy load a published share of requests is taken, the rest comes again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penrose_ray.aggregate.thinning import admitted_share
from penrose_ray.telemetry import ADMITTED, LOAD

if TYPE_CHECKING:
    from collections.abc import Callable


class Throttle:
    """Takes exactly the admitted share of requests, evenly spread: no random numbers, nobody starves."""

    def __init__(self, heavy_load_s: float, share: float, load_s: Callable[[], float]) -> None:
        self._heavy_load_s, self._share, self._load_s = heavy_load_s, share, load_s
        self._credit = 0.0

    def share(self) -> float:
        """Share of requests that is taken now."""
        return admitted_share(self._load_s(), heavy=self._heavy_load_s, throttled=self._share)

    def note(self) -> None:
        """Let the metrics say how it is."""
        LOAD.set(self._load_s())
        ADMITTED.set(self.share())

    def admits(self) -> bool:
        """Whether the next request's new reports are taken."""
        self._credit += self.share()
        if self._credit < 1.0 - 1e-9:
            return False
        self._credit = min(self._credit - 1.0, 1.0)
        return True
