"""Batch experiments on the service's cluster: they queue below aggregation and give way to its shards."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penrose_ray.aggregate.queues import IDLE_S, Queue, Run, merged_queues, preempted
from penrose_ray.errors import ConfigError
from penrose_ray.telemetry import EXPERIMENT_ENDS, EXPERIMENT_QUEUES, EXPERIMENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from penrose_ray.clock import Clock


@dataclass(frozen=True, slots=True)
class Experiment:
    """What to run."""

    name: str
    queue: str
    place: str
    """`module:function`; a generator yields its progress, 0 to 1."""
    cores: int = 1
    arguments: Mapping[str, object] = field(default_factory=dict)
    gpus: float = 0.0


class Running(Protocol):
    """An experiment at work."""

    def progress(self) -> float:
        """Share of its work that is done, 0 to 1."""
        ...

    def finished(self) -> bool:
        """Whether it has ended; raises what it raised."""
        ...

    def stop(self) -> None:
        """End it at once."""
        ...


@dataclass(slots=True)
class _Started:
    experiment: Experiment
    running: Running
    at_s: float


@dataclass(slots=True)
class _Line:
    """A queue: what waits in it, the cores that are its own, and how busy they were of late."""

    cores: int
    since_s: float
    """When it last started an experiment, or was made."""
    waiting: deque[Experiment] = field(default_factory=deque)
    used: deque[tuple[float, int]] = field(default_factory=deque)
    """(when, cores in use from then on), covering the last `IDLE_S`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An experiment that came to its end."""

    name: str
    error: str = ""


class Experiments:
    """Call `tick` every few seconds. What gives way runs again from its beginning, before what came later."""

    def __init__(
        self, cores: Callable[[], int], start: Callable[[Experiment], Running], clock: Clock
    ) -> None:
        """Begin without queues.

        Args:
            cores: how many the service leaves for experiments at the moment.
            start: starts one; returns at once.
            clock: of running times and idle queues.
        """
        self._cores, self._start, self._clock = cores, start, clock
        self._lines: dict[str, _Line] = {}
        self._running: list[_Started] = []
        self._mutex = threading.RLock()
        self._into: dict[str, str] = {}
        self.ended: deque[Ended] = deque(maxlen=100)
        """The last ones that ended."""

    def add_queue(self, name: str, cores: int) -> None:
        """Make a queue with workers of its own."""
        with self._mutex:
            self._lines[name] = _Line(cores, self._clock.monotonic_ns() / 1e9)
            self._into.pop(name, None)

    def submit(self, experiment: Experiment) -> None:
        """Let an experiment wait in its queue, or in the one that took its queue over.

        Raises:
            ConfigError: there is no such queue, or it will never have enough cores.
        """
        with self._mutex:
            line = self._lines.get(self._last(experiment.queue))
            if line is None:
                raise ConfigError(
                    f"There is no queue {experiment.queue!r} for {experiment.name}.",
                    remedy=f"Use one of {', '.join(sorted(self._lines)) or 'service.experiment_queues'}.",
                )
            if not 0 < experiment.cores <= line.cores:
                raise ConfigError(
                    f"{experiment.name} asks for {experiment.cores} cores, its queue has {line.cores}.",
                    remedy="Ask for fewer, or give the queue more in service.experiment_queues.",
                )
            line.waiting.append(experiment)

    def tick(self) -> None:
        """See what ended, give way, merge idle queues, start what fits."""
        with self._mutex:
            now_s = self._clock.monotonic_ns() / 1e9
            self._collect()
            cores = self._cores()
            self._give_way(self._used() - cores, now_s)
            self._note_use(now_s)
            self._merge(now_s)
            self._start_what_fits(cores, now_s)
            self._note_use(now_s)
            EXPERIMENTS.set(len(self._running), state="running")
            EXPERIMENTS.set(sum(len(line.waiting) for line in self._lines.values()), state="waiting")
            EXPERIMENT_QUEUES.set(len(self._lines))

    def state(self) -> list[dict[str, object]]:
        """A row for each experiment that runs or waits."""
        with self._mutex:
            now_s = self._clock.monotonic_ns() / 1e9
            rows: list[dict[str, object]] = [
                {
                    "name": each.experiment.name,
                    "queue": self._last(each.experiment.queue),
                    "running_s": round(now_s - each.at_s),
                    "progress": round(each.running.progress(), 3),
                }
                for each in self._running
            ]
            rows += [
                {"name": each.name, "queue": name, "running_s": None, "progress": 0.0}
                for name, line in self._lines.items()
                for each in line.waiting
            ]
            return rows

    def stop(self) -> None:
        """End all that runs and forget what waits."""
        with self._mutex:
            for each in self._running:
                each.running.stop()
            self._running.clear()
            self._lines.clear()

    def _last(self, queue: str) -> str:
        while queue in self._into:
            queue = self._into[queue]
        return queue

    def _used(self, queue: str | None = None) -> int:
        return sum(
            each.experiment.cores
            for each in self._running
            if queue is None or self._last(each.experiment.queue) == queue
        )

    def _collect(self) -> None:
        for each in list(self._running):
            error = ""
            try:
                if not each.running.finished():
                    continue
            except Exception as caught:  # noqa: BLE001 - it is the experiment's, the service goes on
                error = str(caught) or type(caught).__name__
            each.running.stop()
            self._running.remove(each)
            self.ended.append(Ended(each.experiment.name, error))
            EXPERIMENT_ENDS.add(how="failed" if error else "finished")

    def _give_way(self, cores: int, now_s: float) -> None:
        """Stop runs until `cores` are free; they go back to the head of their queue."""
        if cores <= 0:
            return
        by_name = {f"{number} {each.experiment.name}": each for number, each in enumerate(self._running)}
        runs = [
            Run(name, each.experiment.cores, now_s - each.at_s, each.running.progress())
            for name, each in by_name.items()
        ]
        for run in reversed(preempted(runs, cores)):
            stopped = by_name[run.name]
            stopped.running.stop()
            self._running.remove(stopped)
            self._lines[self._last(stopped.experiment.queue)].waiting.appendleft(stopped.experiment)
            EXPERIMENT_ENDS.add(how="gave-way")

    def _merge(self, now_s: float) -> None:
        queues = [
            Queue(name, self._use(line, now_s), now_s - line.since_s) for name, line in self._lines.items()
        ]
        for gone, stays in merged_queues(queues):
            line = self._lines.pop(gone)
            self._lines[stays].cores += line.cores
            self._lines[stays].waiting.extend(line.waiting)
            self._into[gone] = stays

    def _use(self, line: _Line, now_s: float) -> float:
        """Share of the last `IDLE_S` seconds of its workers that was used."""
        core_s, until_s = 0.0, now_s
        for at_s, cores in reversed(line.used):
            start_s = max(at_s, now_s - IDLE_S)
            core_s += cores * max(0.0, until_s - start_s)
            until_s = min(until_s, start_s)
        return core_s / (line.cores * IDLE_S) if line.cores else 0.0

    def _note_use(self, now_s: float) -> None:
        for name, line in self._lines.items():
            used = self._used(name)
            if not line.used or line.used[-1][1] != used:
                line.used.append((now_s, used))
            while len(line.used) > 1 and line.used[1][0] <= now_s - IDLE_S:
                line.used.popleft()

    def _start_what_fits(self, cores: int, now_s: float) -> None:
        """One of each queue in turn, in the order of the queues, as long as there is room."""
        started = True
        while started:
            started = False
            for line, experiment in self._heads():
                if experiment.cores <= min(
                    cores - self._used(), line.cores - self._used(self._last(experiment.queue))
                ):
                    line.waiting.popleft()
                    line.since_s = now_s
                    self._running.append(_Started(experiment, self._start(experiment), now_s))
                    started = True

    def _heads(self) -> Iterator[tuple[_Line, Experiment]]:
        return ((line, line.waiting[0]) for line in list(self._lines.values()) if line.waiting)
