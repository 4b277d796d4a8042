"""Waiting for tor, which needs real time to find another way."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penrose_ray.clock import ManualClock
    from penrose_ray.transport.outbox import Outbox

MOST_S = 600.0
POLL_S = 0.25


def empty(outbox: Outbox, clock: ManualClock) -> None:
    """Repeat until all is delivered; `clock` is the outbox' own, so its pauses take no real time."""
    waiting, deadline = threading.Event(), time.monotonic() + MOST_S
    while not outbox.flush():
        assert time.monotonic() < deadline, outbox.last_error
        clock.advance(60.0)
        waiting.wait(POLL_S)
