"""The client of a host: one process that reads the rings of all captured programs. It needs no Ray."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray import memory
from penrose_ray.actors.client import NOT_ENROLLED, Client, Enrolled
from penrose_ray.capture.guard import OverheadGuard
from penrose_ray.capture.source import InPrograms

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.actors.client import ClientCounts
    from penrose_ray.actors.moments import Moments
    from penrose_ray.actors.sent_reports import SentReports
    from penrose_ray.capture.guard import Duty
    from penrose_ray.capture.source import EventSource
    from penrose_ray.clock import Clock
    from penrose_ray.policy import OwnerPolicy
    from penrose_ray.seal import Contribution
    from penrose_ray.task import Task
    from penrose_ray.transport.outbox import Outbox
    from penrose_ray.wire import Report

_IDLE_S = 0.1
_LONGEST_IDLE_S = 0.5
"""A ring holds a second of the fastest program seen."""
_TIDY_S = 20.0
"""Between returns of free memory; a return takes some 2 ms and gives 5 MB after the start."""


class _Programs:
    """The watched programs, where capture takes some of their own time."""

    def __init__(self, source: EventSource) -> None:
        self._source = source if isinstance(source, InPrograms) else None
        self._on = True
        self._spent_ns = 0

    def switch(self, *, on: bool) -> None:
        """Have them note their launches, or nothing."""
        if on != self._on and self._source is not None:
            self._source.pause(paused=not on)
        self._on = on

    def newly_spent_ns(self) -> int:
        """CPU time that they have spent on capture since the last call."""
        before, self._spent_ns = self._spent_ns, self._source.spent_ns if self._source else 0
        return self._spent_ns - before


class HostClient:
    """Steps a client within its owner's budget of CPU time, that of the watched programs included."""

    def __init__(  # noqa: PLR0913 - as Client
        self,
        source: EventSource,
        task: Task,
        policy: OwnerPolicy,
        outbox: Outbox,
        *,
        clock: Clock,
        enrolled: Enrolled = NOT_ENROLLED,
        sent: SentReports | None = None,
        moments: Moments | None = None,
        on_contribution: Callable[[Contribution, Report], object] | None = None,
    ) -> None:
        """See `Client` for the arguments."""
        self._enrolled = enrolled
        self._source = source
        source.open()
        self._client = Client(
            source,
            task,
            policy,
            outbox,
            clock=clock,
            rng=np.random.default_rng(),
            enrolled=enrolled,
            sent=sent,
            moments=moments,
            on_contribution=on_contribution,
        )
        self._clock = clock
        self._guard = OverheadGuard(budget_percent=policy.max_overhead_percent, clock=clock)
        self._programs = _Programs(source)

    def run(
        self,
        should_stop: Callable[[], bool],
        *,
        wait: Callable[[float], object],
        on_duty: Callable[[Duty], object],
    ) -> ClientCounts:
        """Go on until told to stop or the source has ended; what is due is sent or spooled."""
        idle_s, tidy_at_s = _IDLE_S, self._clock.now_s() + _TIDY_S
        while not should_stop() and not self._source.exhausted:
            self._enrolled.top_up()
            duty = self._guard.decide()
            on_duty(duty)
            started_ns = time.process_time_ns()
            self._programs.switch(on=duty.on)
            taken = self._step(on=duty.on)
            if self._clock.now_s() >= tidy_at_s:
                memory.give_back()
                tidy_at_s = self._clock.now_s() + _TIDY_S
            self._guard.spend(time.process_time_ns() - started_ns + self._programs.newly_spent_ns())
            idle_s = _IDLE_S if taken else min(2 * idle_s, _LONGEST_IDLE_S)
            if not taken:
                wait(idle_s)
        self._enrolled.top_up(early=True)  # what is due now needs tokens now
        self._source.stop()
        while self._client.step():  # what was held back for its order
            pass
        self._client.finish()
        self._source.close()
        return self._client.counts

    def _step(self, *, on: bool) -> int:
        """Launches taken; while capture is off what is due is sent all the same."""
        if on:
            return self._client.step()
        self._client.settle()
        return 0
