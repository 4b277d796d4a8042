"""The client of a host: one process that reads the rings of all captured programs. It needs no Ray."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import time
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray import memory
from penrose_ray.actors.client import NOT_ENROLLED, Client, Enrolled
from penrose_ray.capture.guard import OverheadGuard
from penrose_ray.capture.ring_source import remove_rings
from penrose_ray.capture.source import InPrograms
from penrose_ray.errors import ConfigError, KeyPermissionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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

_PID = "client.pid"
_IDLE_S = 0.1
_LONGEST_IDLE_S = 0.5
"""A ring holds a second of the fastest program seen."""
_STOP_S = 20.0
_TIDY_S = 20.0
"""Between returns of free memory; a return takes some 2 ms and gives 5 MB after the start."""


class StateDirectory:
    """Everything that a client keeps on a host: rings, spool, key, notes; for its owner only."""

    def __init__(self, path: Path) -> None:
        """Make the directory, or check that nobody else can open it.

        Raises:
            KeyPermissionError: others may enter it.
        """
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.stat().st_mode & 0o077:
            raise KeyPermissionError(
                f"{path} can be opened by others.", remedy=f"Run chmod 700 {path} or choose another --state."
            )
        self.path = path
        self.rings = path / "rings"
        self.spool = path / "spool.sqlite"
        self.spool_key = path / "spool.key"
        self.sent = path / "sent.sqlite"
        self.tokens = path / "tokens.sqlite"
        self._lock: int | None = None

    def lock(self) -> None:
        """Be the only client on this directory until `release`.

        Raises:
            ConfigError: another client runs.
        """
        self._lock = os.open(self.path / _PID, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"Another client runs on {self.path}.", remedy="Stop it with penrose client off."
            ) from error
        os.ftruncate(self._lock, 0)
        os.write(self._lock, str(os.getpid()).encode())

    def release(self) -> None:
        """Let another client run here."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def switch_off(self) -> bool:
        """Stop the client that runs here and delete all state; returns whether one ran."""
        pid = self._running()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            deadline = time.monotonic() + _STOP_S
            while self._running() is not None and time.monotonic() < deadline:
                time.sleep(_IDLE_S)
            if self._running() is not None:
                os.kill(pid, signal.SIGKILL)
        remove_rings(self.rings)
        shutil.rmtree(self.path)
        return pid is not None

    def _running(self) -> int | None:
        """Process that holds the lock, None when nobody does."""
        with contextlib.suppress(FileNotFoundError):
            file = os.open(self.path / _PID, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(os.read(file, 20) or b"0") or None
            finally:
                os.close(file)
        return None


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
            taken = self._client.step() if duty.on else 0
            if self._clock.now_s() >= tidy_at_s:
                memory.give_back()
                tidy_at_s = self._clock.now_s() + _TIDY_S
            self._guard.spend(time.process_time_ns() - started_ns + self._programs.newly_spent_ns())
            idle_s = _IDLE_S if taken else min(2 * idle_s, _LONGEST_IDLE_S)
            if not taken:
                wait(idle_s)
        self._enrolled.top_up(early=True)  # what is due now needs tokens now
        self._client.finish()
        self._source.close()
        return self._client.counts
