"""Samples that wait until their snippet ends and says which class they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.capture.events import EventBatch


class WaitingSamples:
    """Sampled rows by (process, device), in launch order."""

    def __init__(self, counters: int) -> None:
        self._seq: dict[tuple[int, int], list[NDArray[np.uint64]]] = {}
        self._values: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
        self._counters = counters
        self.without_snippet = 0
        """Samples between snippets: their run was too short to have an identity."""

    def put(self, rows: EventBatch) -> None:
        """Keep sampled launches."""
        owner = rows.process.astype(np.int64) << 16 | rows.device
        for key in np.unique(owner):
            mine = owner == key
            place = (int(key) >> 16, int(key) & 0xFFFF)
            self._seq.setdefault(place, []).append(rows.seq[mine])
            self._values.setdefault(place, []).append(rows.counters[mine])

    def take(self, process: int, device: int, first_seq: int, last_seq: int) -> NDArray[np.float64]:
        """Remove and return the samples of a finished snippet, shape (n, counters).

        Earlier samples of the same process and device can find no snippet any more: they are counted.
        """
        place = (process, device)
        if place not in self._seq:
            return np.empty((0, self._counters))
        seq = np.concatenate(self._seq.pop(place))
        values = np.concatenate(self._values.pop(place))
        start, end = np.searchsorted(seq, [first_seq, last_seq + 1])
        self.without_snippet += int(start)
        if end < len(seq):
            self._seq[place] = [seq[end:]]
            self._values[place] = [values[end:]]
        return values[start:end]

    def end_process(self, process: int) -> None:
        """Drop and count what still waits of a process all of whose snippets are finished."""
        for place in [place for place in self._seq if place[0] == process]:
            self.without_snippet += sum(map(len, self._seq.pop(place)))
            del self._values[place]
