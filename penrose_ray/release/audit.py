"""The service's audit log: when it started, grew, was told something and ended. One JSON line an event.

It names commands and numbers, never a report, a class or a client.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from penrose_ray.durable import append, sync_directory
from penrose_ray.errors import TimelineError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.clock import Clock

FILE: Final = "audit.jsonl"
SCALED: Final = "scaled"
MOST_BYTES: Final = 16 << 20
KEPT: Final = 8


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line."""

    time_s: float
    event: str
    detail: str = ""
    amount: int = 1
    """How much of it, such as shards that were added."""


class AuditLog:
    """Appends events; each is on disk when `note` returns.

    A log of 16 MiB becomes FILE.1, what was that FILE.2, up to FILE.8; the oldest one goes.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._mutex = threading.Lock()
        self._cut_off_half_a_line()

    def _cut_off_half_a_line(self) -> None:
        """What a crash left of an event that was never noted; the next one would be lost with it."""
        with contextlib.suppress(FileNotFoundError):
            raw = self._path.read_bytes()
            if (whole := raw.rfind(b"\n") + 1) < len(raw):
                os.truncate(self._path, whole)

    def note(self, event: str, detail: str = "", amount: int = 1) -> None:
        """Write one event with the time of now."""
        line = AuditEvent(time_s=round(self._clock.now_s(), 3), event=event, detail=detail, amount=amount)
        with self._mutex:
            append(self._path, msgspec.json.encode(line) + b"\n")
            if self._path.stat().st_size >= MOST_BYTES:
                self._rotate()

    def _rotate(self) -> None:
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, KEPT + 1))]
        for older, newer in reversed(list(itertools.pairwise(names))):
            if older.exists():
                older.replace(newer)
        sync_directory(self._path.parent)


def read_audit(raw: bytes, name: str) -> list[AuditEvent]:
    """The events of an audit log; a last line that a crash cut short is left out.

    Raises:
        TimelineError: names the line that is none.
    """
    events = []
    for number, line in enumerate(raw[: raw.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            events.append(msgspec.json.decode(line, type=AuditEvent))
        except msgspec.MsgspecError as error:
            raise TimelineError(
                f"{name}, line {number} is no event of an audit log: {error}.",
                remedy="Give an audit log, a ledger or an answer of Prometheus, whole.",
            ) from error
    return events
