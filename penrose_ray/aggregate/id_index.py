"""Which ids have been seen: sorted runs in memory, 40 bytes an id.

An index on random ids in the journal itself rewrites a page for nearly every report once it is large. Ids are
written there in order of arrival instead and looked up here. Runs are merged when they come close in size, so
there are few, and an id is moved a number of times that grows with the logarithm of their count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penrose_ray.types import ReportId

ID_BYTES: Final = 32
_PREFIX_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class _Run:
    """Ids, shape (n, 32), ascending in their first 8 bytes, which `prefixes` holds as numbers."""

    prefixes: NDArray[np.uint64]
    ids: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.prefixes)

    def places(
        self, wanted: NDArray[np.uint8], prefixes: NDArray[np.uint64]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Of these ids the places, and the places here, of those that are here."""
        at = np.searchsorted(self.prefixes, prefixes)
        index = np.flatnonzero(self.prefixes[np.minimum(at, len(self) - 1)] == prefixes)
        place = at[index]
        same = (self.ids[place] == wanted[index]).all(axis=1)
        for each in np.flatnonzero(~same):  # others may begin with the same 8 bytes
            end = np.searchsorted(self.prefixes, prefixes[index[each]], side="right")
            found = np.flatnonzero((self.ids[place[each] : end] == wanted[index[each]]).all(axis=1))
            same[each] = len(found)
            place[each] += found.sum()  # one at most
        return index[same], place[same]


class IdIndex:
    """A set of report ids."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def copy(self) -> IdIndex:
        """Another one with the same ids; cheap, for runs never change."""
        made = IdIndex()
        made._runs = list(self._runs)
        return made

    def add(self, ids: NDArray[np.uint8]) -> None:
        """Add ids, shape (n, 32), none of which is in yet."""
        if not len(ids):
            return
        run = _run(ids)
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = _run(np.concatenate([self._runs.pop().ids, run.ids]))
        self._runs.append(run)

    def remove(self, ids: NDArray[np.uint8]) -> None:
        """Take ids, shape (n, 32), out; those that are not in do no harm."""
        prefixes = _prefixes(ids)
        for at, run in enumerate(self._runs):
            _, gone = run.places(ids, prefixes)
            if len(gone):
                self._runs[at] = _Run(np.delete(run.prefixes, gone), np.delete(run.ids, gone, axis=0))
        self._runs = [run for run in self._runs if len(run)]

    def known(self, ids: Sequence[ReportId]) -> set[ReportId]:
        """Which of these ids are in."""
        if not ids:
            return set()
        found = self.has(np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, ID_BYTES))
        return {id_ for id_, is_known in zip(ids, found.tolist(), strict=True) if is_known}

    def has(self, wanted: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which of these ids, shape (n, 32), are in."""
        prefixes = _prefixes(wanted)
        found = np.zeros(len(wanted), dtype=np.bool_)
        for run in self._runs:
            found[run.places(wanted, prefixes)[0]] = True
        return found

    def first_bytes(self) -> set[int]:
        """First bytes of all ids."""
        return {int(byte) for run in self._runs for byte in np.unique(run.ids[:, 0])}


def _run(ids: NDArray[np.uint8]) -> _Run:
    prefixes = _prefixes(ids)
    order = np.argsort(prefixes, kind="stable")
    return _Run(prefixes[order], ids[order])


def _prefixes(ids: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(ids[:, :_PREFIX_BYTES]).view(">u8").ravel().astype(np.uint64)
