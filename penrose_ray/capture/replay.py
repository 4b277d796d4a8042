"""A recorded file as a stream of launches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.capture.armed import ArmedLaunches
from penrose_ray.capture.ends import ProcessEnds
from penrose_ray.capture.events import Capabilities, EventBatch, SourceHealth
from penrose_ray.capture.formats import read_recording
from penrose_ray.capture.queued import only_armed
from penrose_ray.capture.tally import Tally
from penrose_ray.errors import SourceError, TraceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.capture.recording import Recording
    from penrose_ray.histogram import Counter


class ReplaySource:
    """EventSource over a trace file of any format that `read_recording` knows.

    Counters appear on armed launches only, as they would live.

    Args:
        path: the file.
        repeat: how often the recording is played, one run directly behind the other, with times that go on.
    """

    def __init__(self, path: str | Path, *, repeat: int = 1) -> None:
        if repeat < 1:
            raise SourceError(
                f"A recording is played 1 time or more, not {repeat}.", remedy="Set repeat >= 1."
            )
        self._path = Path(path)
        self._repeat = repeat
        self._recording: Recording | None = None
        self._tally = Tally()
        self._position = 0
        """Next launch of all runs together."""
        self._end = 0
        self._armed = ArmedLaunches(())
        self._ends = ProcessEnds()
        self._closed = False
        self._gap = False

    @property
    def counters(self) -> tuple[Counter, ...]:
        """What the file measured; the duration comes first."""
        return self._load().counters

    @property
    def names(self) -> Sequence[str]:
        """Kernel names."""
        return self._load().names

    @property
    def devices(self) -> Sequence[str]:
        """Model names, one for each device that launched."""
        return self._load().devices

    @property
    def exhausted(self) -> bool:
        """True at the end of the last run, and when closed."""
        return self._closed or (self._recording is not None and self._position >= self._end)

    def _load(self) -> Recording:
        if self._recording is None:
            self._recording = read_recording(self._path)
            self._armed = ArmedLaunches(self._recording.counters)
            self._tally = self._recording.tally
            self._tally.seen = self._end = len(self._recording.batch) * self._repeat
            self._tally.gaps *= self._repeat
            self._note_ends(self._recording)
        return self._recording

    def _note_ends(self, recording: Recording) -> None:
        """Each process ends with its last launch in the last run."""
        processes, from_end = np.unique(recording.batch.process[::-1], return_index=True)
        for place in np.argsort(-from_end):
            self._ends.note(int(processes[place]), self._end - int(from_end[place]))

    def probe(self) -> Capabilities:
        """Whether the file can be read."""
        try:
            self._load()
        except TraceError as error:
            return Capabilities(available=False, per_kernel_counters=False, reasons=(str(error),))
        return Capabilities(available=True, per_kernel_counters=True)

    def open(self) -> None:
        """Read the file; after `close`, play it again, with numbers that go on and a gap before them."""
        recording = self._load()
        if self._closed:
            more = len(recording.batch) * self._repeat
            self._end += more
            self._tally.seen += more
            self._note_ends(recording)
        self._closed = False

    def arm(self, launches: Sequence[int], counters: Sequence[Counter]) -> None:
        """Show the recorded counters of these launches."""
        self._load()
        self._tally.late_arms += self._armed.add(launches, counters, first=self._position)

    def poll(self, max_events: int) -> EventBatch:
        """The next launches, never across the end of a run."""
        recording = self._load()
        rows = len(recording.batch)
        if self.exhausted or max_events < 1:
            return EventBatch.empty(len(recording.counters))
        run, first = divmod(self._position, rows)
        part = recording.batch.take(slice(first, min(first + max_events, rows)))
        self._position += len(part)
        self._tally.delivered += len(part)
        part = self._shifted(part, run, rows)
        if self._gap:
            part = part.replace(gap=np.arange(len(part)) == 0)
            self._gap = False
        return only_armed(part, self._armed)

    def _shifted(self, part: EventBatch, run: int, rows: int) -> EventBatch:
        if run == 0:
            return part
        whole = self._load().batch
        shift = run * _span_ns(whole)
        return part.replace(
            seq=part.seq + np.uint64(run * rows),
            start_ns=np.where(part.end_ns == 0, 0, part.start_ns + shift),
            end_ns=np.where(part.end_ns == 0, 0, part.end_ns + shift),
        )

    def ended(self) -> Sequence[int]:
        """Processes whose last launch was polled, or dropped at the end; each is told once."""
        return self._ends.passed(self._position)

    def health(self) -> SourceHealth:
        """The account so far."""
        return self._tally.snapshot()

    def stop(self) -> None:
        """End the recording here: what was not polled has not happened yet."""
        self.close()

    def close(self) -> None:
        """Drop what was not polled."""
        if not self._closed and self._recording is not None:
            self._gap = self._end > self._position
            self._tally.dropped += self._end - self._position
            self._tally.gaps += self._gap
            self._position = self._end
        self._closed = True


def _span_ns(batch: EventBatch) -> int:
    known = batch.end_ns != 0
    return int(batch.end_ns[known].max() - batch.start_ns[known].min()) if known.any() else 0
