"""Shedding load: reports of frequent classes are dropped at a rate that is published with their sum.

Whether a report is kept is a function of its id and the rate alone: a retry is judged alike, and what is kept
at a lower rate is part of what is kept at a higher one, so a rate may fall while a batch is open. A sum over
reports kept with probability p, divided by p, is an unbiased estimate of the full sum (Horvitz and Thompson
1952). Ciphertexts are never multiplied by a number: the division happens after opening.
"""

from __future__ import annotations

import hashlib
import heapq
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penrose_ray.aggregate.arrival import SumKey
    from penrose_ray.types import ReportId

MOST_HALVINGS: Final = 20
HEAVY_LOAD: Final = 5.0
THROTTLED_SHARE: Final = 0.8
_BITS: Final = 64


def kept(report_id: ReportId, halvings: int) -> bool:
    """Whether a report is among the one in 2^halvings that is kept."""
    if not halvings:
        return True
    digest = hashlib.blake2b(report_id, digest_size=8, person=b"thinning").digest()
    return int.from_bytes(digest, "big") >> (_BITS - halvings) == 0


def keep_share(halvings: int) -> float:
    """Probability that a report is kept, exact in floating point."""
    return 2.0**-halvings


def shed(
    rates: Mapping[SumKey, float],
    halvings: Mapping[SumKey, int],
    *,
    wanted_per_s: float,
    floor_per_s: float,
) -> dict[SumKey, int]:
    """Which sums to thin further so that all together take at most `wanted_per_s` reports a second.

    `rates` are arrivals a second before thinning. The most frequent kept rate is halved first and none is
    brought below `floor_per_s`, so small classes are never touched: they lose nothing to large ones.

    Returns:
        New halvings of the sums that change, each larger than before.
    """
    levels = {key: halvings.get(key, 0) for key in rates}
    queue = [(-rate * keep_share(levels[key]), key) for key, rate in rates.items()]
    total = -sum(rate for rate, _ in queue)
    heapq.heapify(queue)
    while total > wanted_per_s and queue and -queue[0][0] / 2 >= floor_per_s:
        rate, key = heapq.heappop(queue)
        if levels[key] < MOST_HALVINGS:
            levels[key] += 1
            total += rate / 2
            heapq.heappush(queue, (rate / 2, key))
    return {key: level for key, level in levels.items() if level > halvings.get(key, 0)}


def admitted_share(load: float, *, heavy: float = HEAVY_LOAD, throttled: float = THROTTLED_SHARE) -> float:
    """Share of requests that the gateway takes under a load (work waiting over work a second can take).

    Over 5 it is 80 %, the published rule; the others are answered "try again later". A client that does is
    judged like any other, so this slows reports down and drops none.
    """
    return throttled if load > heavy else 1.0
