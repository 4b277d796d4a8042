"""Transport inside one process: for simulations and for tests without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class DirectUploader:
    """Hands each record to a function of the same process."""

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self._take = take

    def send(self, record: bytes) -> None:
        """Deliver; whatever the function raises reaches the caller."""
        self._take(record)
