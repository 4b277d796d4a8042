"""What the conformance suite asks of the thing in front of a source."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.capture.source import EventSource

CAPACITY = 50


class Rig(ABC):
    """A source, and a way to make launches happen in front of it."""

    live: ClassVar = True
    """Launches go on arriving; a recording has all of them from the start."""
    sees_ends: ClassVar = False
    """Its processes are seen to end."""
    gauges: ClassVar = False
    """Readings of devices, which need no arming."""
    never_twice: ClassVar = ""
    """Why nothing can be reported twice here, where that is so."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source: EventSource = self.make()

    @abstractmethod
    def make(self) -> EventSource:
        """A source that holds at most CAPACITY launches."""

    def launch(self, count: int) -> None:  # noqa: B027 - a recording has all its launches already
        """Let `count` launches happen."""

    @abstractmethod
    def cut_short(self, count: int) -> int | None:
        """Let `count` launches happen and what reports them end in the middle of the last one.

        Returns:
            How many launches are whole; None where nothing but one clear error is left.
        """

    @abstractmethod
    def repeat(self, count: int) -> int:
        """Let launches happen, `count` of them where that can be chosen, and be reported twice each.

        Returns:
            How many launches that are.
        """

    def tear_down(self) -> None:  # noqa: B027 - most rigs hold nothing
        """Give back what the rig holds."""
