"""Hand-overs that nobody asks for: which batch is due when, one attempt at a time, a failed one again later.

What is due follows from the clock and from the batches that still wait, so nothing is kept on disk: after a
restart a batch whose time has passed is due at once, and one that was handed over waits no more.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penrose_ray.errors import LedgerError, PenroseError
from penrose_ray.release.desk import LATE_S
from penrose_ray.telemetry import HANDOVER_FAILING, RELEASE_OVERDUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.actors.releaser import Releaser
    from penrose_ray.clock import Clock
    from penrose_ray.release.handover import Handover
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId

_LOOK_EVERY_S: Final = 60.0
_FIRST_RETRY_S: Final = 60.0
_LAST_RETRY_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Timetable:
    """When batches are handed over: at multiples of a period, each once its last report can have come."""

    batch_s: int
    late_s: int
    """How long reports may arrive after their batch."""
    every_s: float
    """The period; 0 for no hand-over but by hand."""

    @classmethod
    def of(cls, task: Task, every_s: float) -> Timetable:
        """The timetable of a task: reports with tokens may come 36 h late, others join the next batch."""
        return cls(task.batch_s, LATE_S if task.tokens_per_day else 0, every_s)

    def time_of(self, batch: BatchId) -> float:
        """Seconds since the epoch; by hand, from when on it may be handed over."""
        end_s = (batch + 1) * self.batch_s
        periods_s = math.ceil(end_s / self.every_s) * self.every_s if self.every_s else end_s
        return periods_s + self.late_s

    def next_after(self, now_s: float) -> float | None:
        """The next hand-over; None when there is none but by hand."""
        if not self.every_s:
            return None
        return (math.floor((now_s - self.late_s) / self.every_s) + 1) * self.every_s + self.late_s


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a batch was not handed over."""

    code: str
    text: str

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """The error's code, or its type where it has none, and what it says in a line."""
        if isinstance(error, PenroseError):
            return cls(error.code, f"{error.message} {error.remedy}")
        name = type(error).__name__
        return cls(name, f"{name}: {error}".partition("\n")[0])


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of the batches that were due."""

    handed_over: tuple[Handover, ...]
    failed: dict[BatchId, Failure]


class HandOvers:
    """Hands over what is due; call `tick` every few seconds from one thread."""

    def __init__(self, releaser: Releaser, timetable: Timetable, clock: Clock) -> None:
        self._releaser, self._timetable, self._clock = releaser, timetable, clock
        self._ended: deque[Attempt] = deque()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._failing: dict[BatchId, Failure] = {}
        self._look_s = self._retry_s = float("-inf")
        self._pause_s = _FIRST_RETRY_S

    def tick(self) -> None:
        """Once a minute, or a period where that is shorter, look which batches wait; hand over what is due.

        That happens in a thread of its own; nothing is looked at before it has ended.
        """
        now_s = self._monotonic_s()
        if now_s < self._look_s or self.is_running:
            return
        waiting = self._releaser.batches()
        self._look_s = now_s + min(_LOOK_EVERY_S, self._timetable.every_s or _LOOK_EVERY_S)
        wall_s = self._clock.now_s()
        late_s = {batch: wall_s - self._timetable.time_of(batch) for batch in waiting}
        RELEASE_OVERDUE.set(max(0.0, *late_s.values()) if late_s else 0.0)
        due = [batch for batch in waiting if late_s[batch] >= 0 and not self._rests(batch, now_s)]
        if self._timetable.every_s and due:
            self._thread = threading.Thread(target=self._run, args=(due,), name="hand-over", daemon=True)
            self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether batches are being handed over."""
        return self._thread is not None and self._thread.is_alive()

    def _rests(self, batch: BatchId, now_s: float) -> bool:
        """Whether it failed and it is too early to try it again."""
        return batch in self._failing and now_s < self._retry_s

    def _run(self, due: Sequence[BatchId]) -> None:
        handed_over: list[Handover] = []
        failed: dict[BatchId, Failure] = {}
        for batch in due:
            if self._ending.is_set():
                break
            try:
                handed_over.append(self._releaser.release(batch))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told and tried again
                failed[batch] = Failure.of(error)
        self._note(due, failed)
        self._ended.append(Attempt(tuple(handed_over), failed))

    def _note(self, tried: Sequence[BatchId], failed: dict[BatchId, Failure]) -> None:
        rest = {batch: failure for batch, failure in self._failing.items() if batch not in tried}
        self._failing = rest | failed
        HANDOVER_FAILING.set(len(self._failing))
        now_s = self._look_s = self._monotonic_s()
        if failed:
            self._retry_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, _LAST_RETRY_S)
        elif not rest:
            self._pause_s = _FIRST_RETRY_S

    def ended(self) -> list[Attempt]:
        """Attempts that have ended since the last call."""
        return [self._ended.popleft() for _ in range(len(self._ended))]

    def state(self) -> dict[str, object]:
        """Next and last hand-over, by hand or not, ready for JSON; times in seconds since the epoch."""
        now_s = self._clock.now_s()
        next_s = self._timetable.next_after(now_s)
        if next_s and self._failing:
            next_s = min(next_s, now_s + max(0.0, self._retry_s - self._monotonic_s()))
        return {
            "every_s": self._timetable.every_s,
            "next_s": next_s,
            "running": self.is_running,
            "failing": {str(batch): each.text for batch, each in self._failing.items()},
            "last": self._last(),
        }

    def _last(self) -> dict[str, object] | None:
        try:
            entries = self._releaser.desk.entries()
        except LedgerError as error:
            return {"error": error.message}
        found = next((each for each in reversed(entries) if each.facts.kind == "release"), None)
        if found is None:
            return None
        facts = found.facts
        return {"at_s": found.time_s, "batch": facts.batch, "sums": facts.sums, "reports": facts.reports}

    def stop(self, timeout_s: float) -> None:
        """Begin no further batch and wait for the one under way; what is left is due at the next start."""
        self._ending.set()
        if self._thread:
            self._thread.join(timeout_s)

    def _monotonic_s(self) -> float:
        return self._clock.monotonic_ns() / 1e9
