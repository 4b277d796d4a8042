"""Waiting for what comes by itself: the bound is for what never comes, and long for a busy machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_S = 300.0


def until(true: Callable[[], object], tend: Callable[[], object] = lambda: None) -> None:
    """Return once `true()` is; `tend` is called between two looks."""
    deadline = time.monotonic() + _MOST_S
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        tend()
        time.sleep(0.02)  # polls; nothing depends on its length
