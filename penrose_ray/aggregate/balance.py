"""When to add shards and when to take one away: a pure decision with its reason.

Over the last five minutes: more than 0.85 busy with work waiting adds two shards, less than 0.15 removes one.
It cannot flap. Two more of n shards leave more than 0.85 n / (n + 2), which is 0.28 or more, above 0.15; one
fewer leaves less than 0.15 n / (n - 1), which is 0.30 or less, below 0.85.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SPAN_S: Final = 300.0
BUSY: Final = 0.85
QUIET: Final = 0.15
STEP_UP: Final = 2


@dataclass(frozen=True, slots=True)
class Sample:
    """Load of all shards at one time."""

    at_s: float
    busy: float
    """Mean share of time that a shard worked since the sample before, 0 to 1."""
    waiting: int
    """Reports waiting in all queues."""


@dataclass(frozen=True, slots=True)
class Window:
    """What a decision looks at."""

    shards: int
    """Shards that work."""
    pending: int = 0
    """Shards asked for that do not work yet, or that are being drained."""
    least: int = 1
    most: int = 64
    changed_s: float = float("-inf")
    """When a decision last changed the number of shards."""
    samples: tuple[Sample, ...] = ()
    """Ascending in time."""

    def add(self, sample: Sample) -> Window:
        """The window with one more sample, without those that no decision needs any more.

        A sample older than the newest one (a clock set back) starts the window anew.
        """
        if self.samples and sample.at_s < self.samples[-1].at_s:
            return replace(self, samples=(sample,), changed_s=min(self.changed_s, sample.at_s))
        first = bisect.bisect_right(self.samples, sample.at_s - SPAN_S, key=lambda each: each.at_s)
        return replace(self, samples=(*self.samples[max(0, first - 1) :], sample))


@dataclass(frozen=True, slots=True)
class Decision:
    """Shards to add (positive) or to drain and remove (negative), and why."""

    delta: int
    reason: str


def decide(window: Window, now_s: float) -> Decision:
    """What to do now. Bounds come first, then a full window of five minutes since the last change."""
    if window.shards < window.least and not window.pending:
        return Decision(window.least - window.shards, f"{window.shards} shards, {window.least} are the least")
    if window.shards > window.most:
        return Decision(-1, f"{window.shards} shards, {window.most} are the most")
    start_s = now_s - SPAN_S
    if window.changed_s > start_s:
        return Decision(0, f"changed {now_s - window.changed_s:.0f} s ago, {SPAN_S:.0f} s are waited")
    if not window.samples or window.samples[0].at_s > start_s:
        return Decision(0, f"the samples do not cover {SPAN_S:.0f} s yet")
    return _by_load(window, sum(_weighted(window.samples, start_s, now_s)) / SPAN_S)


def _by_load(window: Window, busy: float) -> Decision:
    waiting = window.samples[-1].waiting
    load = f"busy {busy:.2f} over {SPAN_S:.0f} s, {waiting} waiting"
    delta = 0
    if busy > BUSY and waiting:
        total = window.shards + window.pending
        delta = min(STEP_UP, window.most - total)
        if delta <= 0:
            return Decision(0, f"{load}, but {total} of {window.most} shards are there")
    elif busy < QUIET:
        if window.pending:
            return Decision(0, f"{load}, but {window.pending} shards are pending")
        if window.shards <= window.least:
            return Decision(0, f"{load}, but {window.least} shards are the least")
        delta = -1
    return Decision(delta, load)


def _weighted(samples: tuple[Sample, ...], start_s: float, now_s: float) -> Iterator[float]:
    """Busy seconds of one shard in each piece of the span; a sample says how busy the time before it was."""
    before_s = start_s
    for sample in samples:
        if sample.at_s > start_s:
            end_s = min(sample.at_s, now_s)
            yield sample.busy * (end_s - before_s)
            before_s = end_s
    if samples and now_s > before_s:
        yield samples[-1].busy * (now_s - before_s)
