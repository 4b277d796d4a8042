"""The client: launches in, sealed reports out. It runs with or without Ray."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penrose_ray.actors.device_class import DeviceClass
from penrose_ray.actors.local_classes import LocalClass, LocalClasses
from penrose_ray.actors.open_histograms import Due, OpenHistograms
from penrose_ray.actors.samples import WaitingSamples
from penrose_ray.actors.sampling_plan import SamplingPlan
from penrose_ray.actors.sent_reports import SentReports
from penrose_ray.capture.events import KernelKind
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.errors import ConfigError
from penrose_ray.release.tokens import DAY_S
from penrose_ray.seal import Contribution, Sealer, cover
from penrose_ray.snippet.cutter import Snippet, SnippetCutter
from penrose_ray.snippet.identity import PLAIN
from penrose_ray.snippet.minhash import scheme
from penrose_ray.telemetry import CLIENT_LAUNCHES, CLIENT_REPORTS, CLIENT_SAMPLES, CLIENT_SNIPPETS
from penrose_ray.transport.pace import closing_window_s
from penrose_ray.wire import Report, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penrose_ray.actors.moments import Moments
    from penrose_ray.capture.events import EventBatch
    from penrose_ray.capture.source import EventSource
    from penrose_ray.clock import Clock
    from penrose_ray.policy import OwnerPolicy
    from penrose_ray.snippet.identity import Identity
    from penrose_ray.task import Task
    from penrose_ray.transport.outbox import Outbox
    from penrose_ray.types import BatchId

POLL_EVENTS = 65_536
POOLED_REPORTS = 8
"""Blinding kept ready, about 3 KB a report."""


@dataclass(frozen=True, slots=True)
class ClientCounts:
    """What a client has done."""

    launches: int = 0
    samples: int = 0
    snippets: int = 0
    classes: int = 0
    reports: int = 0
    cover_reports: int = 0
    waiting: int = 0
    refused: int = 0
    dropped_samples: int = 0
    without_token: int = 0
    """Real reports that were not sent because the day's tokens were spent."""
    without_identity: int = 0
    """Snippets that were dropped because the key server gave no values for them."""


class Tokens(Protocol):
    """What pays for reports, one token each."""

    def top_up(self, *, early: bool = False) -> None:
        """Get the day's tokens if they can be had and it is time to ask, or `early`."""
        ...

    def left(self, day: int) -> int:
        """Tokens of a day (days since the epoch) that are left."""
        ...

    def take(self, day: int) -> bytes:
        """Spend one."""
        ...


@dataclass(frozen=True, slots=True)
class Enrolled:
    """What a client has from the parties that know it (see `parties.py`)."""

    purse: Tokens | None = None
    """The day's tokens."""
    identity: Identity = PLAIN
    """What the task's identity mode does to signatures."""

    def top_up(self, *, early: bool = False) -> None:
        """Get the day's tokens if it is time to ask, or `early`."""
        if self.purse is not None:
            self.purse.top_up(early=early)


NOT_ENROLLED = Enrolled()


class Client:
    """Watches one source for one task.

    Args:
        source: an open event source.
        task: verified.
        policy: the owner's; PolicyError when it does not allow the task.
        outbox: where sealed reports go.
        enrolled: what issuer and key server give this client, in a task that has them.
        sent: reports of earlier lives of this client; without it they are remembered in memory alone.
        moments: when the reports of a batch that is over begin to go; without them, at its end.
        on_contribution: sees each contribution in the clear with its sealed report. Only code that constructs
            a client can pass it; no configuration does.
    """

    def __init__(  # noqa: PLR0913 - each is a part that a test replaces
        self,
        source: EventSource,
        task: Task,
        policy: OwnerPolicy,
        outbox: Outbox,
        *,
        clock: Clock,
        rng: np.random.Generator,
        on_contribution: Callable[[Contribution, Report], object] | None = None,
        enrolled: Enrolled = NOT_ENROLLED,
        sent: SentReports | None = None,
        moments: Moments | None = None,
    ) -> None:
        policy.check(task)
        purse, identity = enrolled.purse, enrolled.identity
        if (identity is PLAIN) != (task.identity == "plain"):
            raise ConfigError(
                f"This task's identity mode is {task.identity!r}, and this client is not set up for it.",
                remedy="See the keys of an enrolled client in docs/threats.md.",
            )
        if task.tokens_per_day and purse is None:
            raise ConfigError(
                "This task pays reports with tokens, and this client has no issuer.",
                remedy="Set issuer_url and credential_variable of the client.",
            )
        self._purse = purse if task.tokens_per_day else None
        self._source = source
        self._task = task
        self._outbox = outbox
        self._clock = clock
        self._rng = rng
        self._on_contribution = on_contribution
        self._plan = SamplingPlan(task, source, clock=clock, rng=rng)
        self._plan.arm(0)
        self._cutter = SnippetCutter(task.snippet_launches, scheme(task.signature_scheme), identity)
        self._device_class = DeviceClass(task, identity)
        self._classes = LocalClasses(task, sent or SentReports(task))
        self._waiting = WaitingSamples(len(self._plan.counters))
        self._histograms = OpenHistograms(task, rng)
        self._encryptor = Encryptor(task.key(), task.profile(), small=True)
        self._sealers: dict[str, Sealer] = {}
        self._counts = ClientCounts()
        self._moments = moments
        self._batch: BatchId | None = None

    def step(self, max_events: int = POLL_EVENTS) -> int:
        """Take what the source has, send what is due; returns the number of launches taken."""
        self._begin_batch()
        batch = self._source.poll(max_events)
        readings = batch.take(batch.kind == KernelKind.GAUGE)
        if len(readings):
            self._add_readings(readings)
        launches = batch.take(batch.kind == KernelKind.KERNEL)
        sampled = self._plan.select(launches)
        self._waiting.put(sampled)
        for snippet in self._cutter.push(launches, self._source.names):
            self._end_snippet(snippet)
        for process in self._source.ended():
            for snippet in self._cutter.end_process(process):
                self._end_snippet(snippet)
            self._waiting.end_process(process)
        self._seal(self._histograms.roll(self._clock.now_s()))
        if len(batch):
            self._plan.arm(int(batch.seq[-1]) + 1)
        elif self._encryptor.pool_size < POOLED_REPORTS:
            self._encryptor.fill_pool(1)  # idle: the next report is sealed in microseconds
        self._outbox.flush()
        self._count(launches=len(launches), samples=len(sampled) + len(readings))
        CLIENT_LAUNCHES.add(len(launches))
        CLIENT_SAMPLES.add(len(sampled) + len(readings), result="read")
        return len(batch)

    def settle(self) -> None:
        """Send what is due and take nothing: while capture is off, which may last."""
        self._begin_batch()
        self._seal(self._histograms.roll(self._clock.now_s()))
        self._outbox.flush()

    def finish(self) -> None:
        """The applications have ended: close snippets and histograms, send what can be sent."""
        for snippet in self._cutter.finish():
            self._end_snippet(snippet)
        self._seal(self._histograms.finish())
        self._outbox.flush()

    @property
    def counts(self) -> ClientCounts:
        """What has been done so far."""
        return replace(
            self._counts,
            classes=len(self._classes),
            waiting=len(self._outbox),
            refused=self._outbox.counts.refused,
            without_identity=self._cutter.without_identity,
            dropped_samples=self._counts.dropped_samples
            + self._histograms.dropped_samples
            + self._waiting.without_snippet,
        )

    def _begin_batch(self) -> None:
        """Once a batch: forget what is noted of earlier ones, and hold what they brought for a while."""
        now_s = self._clock.now_s()
        batch = self._task.batch_of(now_s)
        if batch == self._batch:
            return
        self._batch = batch
        self._classes.forget(now_s)
        if self._moments is not None and self._task.reports_per_class:
            length_s = self._task.batch_s
            offset_s = self._moments.offset_s("batch", batch, closing_window_s(length_s))
            self._outbox.hold(max(0.0, batch * length_s + offset_s - now_s))

    def _end_snippet(self, snippet: Snippet) -> None:
        local_class = self._classes.of(self._source.devices[snippet.device], snippet.signature)
        values = self._waiting.take(snippet.process, snippet.device, snippet.first_seq, snippet.last_seq)
        self._count(snippets=1)
        CLIENT_SNIPPETS.add()
        self._bin(local_class, values)

    def _add_readings(self, readings: EventBatch) -> None:
        """Put readings of whole devices into the histograms of their models."""
        signature = self._device_class.signature()
        if signature is None:
            self._count(dropped_samples=len(readings))
            return
        for device in np.unique(readings.device):
            local_class = self._classes.of(self._source.devices[device], signature)
            self._bin(local_class, readings.counters[readings.device == device])

    def _bin(self, local_class: LocalClass, values: NDArray[np.float64]) -> None:
        """Count samples of a class in every counter set that they have values for."""
        now_s = self._clock.now_s()
        for counter_set, columns in self._plan.columns.items():
            chosen = values[:, columns]
            measured = chosen[~np.isnan(chosen).any(axis=1)]
            if len(measured):
                CLIENT_SAMPLES.add(len(measured), result="binned")
                bins = self._task.counter_sets[counter_set].bin_of(measured)
                self._seal(self._histograms.add(local_class, counter_set, bins, now_s=now_s))

    def _seal(self, due: list[Due]) -> None:
        for each in self._order(due):
            real = each.contribution
            if not self._classes.may_send(each.local_class, real.counter_set, self._created_s(each)):
                self._count(dropped_samples=int(real.counts.sum()))
                continue
            for contribution, local_class in [*self._covers(), (real, each.local_class)]:
                if not self._send(contribution, local_class, each):
                    self._count(without_token=int(contribution.real))
                    CLIENT_REPORTS.add(step="without-token")

    def _order(self, due: list[Due]) -> list[Due]:
        """Which reports go first when tokens run short: at random, weighted by samples.

        Ascending exponential variables of rate w pick without replacement with probability w among what is
        left (Efraimidis and Spirakis 2006).
        """
        if self._purse is None:
            return due
        samples = np.array([each.contribution.counts.sum() for each in due], np.float64)
        order = np.argsort(self._rng.exponential(size=len(due)) / samples)
        return [due[at] for at in order]

    def _covers(self) -> list[tuple[Contribution, LocalClass]]:
        """Cover reports before a real one, so that a share q of all reports are cover."""
        classes = self._classes.all()
        count = int(self._rng.geometric(1 - self._task.cover_rate)) - 1
        sets = list(self._plan.columns)
        return [
            (cover(sets[self._rng.integers(len(sets))]), classes[self._rng.integers(len(classes))])
            for _ in range(count)
        ]

    def _created_s(self, due: Due) -> float:
        """When its report says it was made: within its batch, also where the batch is over."""
        return min(self._clock.now_s(), (due.batch + 1) * self._task.batch_s - 1)

    def _send(self, contribution: Contribution, local_class: LocalClass, due: Due) -> bool:
        """Seal and queue a report; False when there is no token for it."""
        created_s = self._created_s(due)
        day = int(created_s // DAY_S)
        if self._purse is not None and not self._purse.left(day):
            return False
        token = self._purse.take(day) if self._purse is not None else b""
        if contribution.real:
            self._classes.note(local_class, contribution.counter_set, created_s)
        signature = self._classes.representative(local_class)
        sealer = self._sealer(local_class.gpu_model)
        report = sealer.seal(contribution, signature, now_s=created_s, token=token)
        if self._on_contribution is not None:
            self._on_contribution(contribution, report)
        self._outbox.put(encode(report, self._task.service_key))
        CLIENT_REPORTS.add(step="real" if contribution.real else "cover")
        self._count(reports=int(contribution.real), cover_reports=int(not contribution.real))
        return True

    def _sealer(self, gpu_model: str) -> Sealer:
        if gpu_model not in self._sealers:
            self._sealers[gpu_model] = Sealer(self._task, gpu_model, self._encryptor)
        return self._sealers[gpu_model]

    def _count(self, **more: int) -> None:
        self._counts = replace(
            self._counts, **{name: getattr(self._counts, name) + value for name, value in more.items()}
        )
