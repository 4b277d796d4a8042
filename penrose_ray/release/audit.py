"""The service's audit log: when it started, grew, was told something and ended. One JSON line an event.

It names commands and numbers, never a report, a class or a client.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

import msgspec

from penrose_ray.errors import TimelineError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.clock import Clock

FILE: Final = "audit.jsonl"
SCALED: Final = "scaled"


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line."""

    time_s: float
    event: str
    detail: str = ""
    amount: int = 1
    """How much of it, such as shards that were added."""


class AuditLog:
    """Appends events; each is on disk when `note` returns."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._mutex = threading.Lock()

    def note(self, event: str, detail: str = "", amount: int = 1) -> None:
        """Write one event with the time of now."""
        line = AuditEvent(time_s=round(self._clock.now_s(), 3), event=event, detail=detail, amount=amount)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        with self._mutex:
            handle = os.open(self._path, flags, 0o600)
            try:
                os.write(handle, msgspec.json.encode(line) + b"\n")
                os.fsync(handle)
            finally:
                os.close(handle)


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
