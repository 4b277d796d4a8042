"""Cuts launch streams into snippets: L launches of one process on one device, fewer where it ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penrose_ray.errors import QuotaError, TransportError
from penrose_ray.snippet import compiled
from penrose_ray.snippet.identity import PLAIN, Identity
from penrose_ray.snippet.minhash import Scheme, Signature, of_hashes
from penrose_ray.snippet.names import NameHashes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


class Launches(Protocol):
    """Columns of launches in host launch order; a capture's EventBatch has them."""

    @property
    def seq(self) -> NDArray[np.uint64]:
        """Launch sequence number."""
        ...

    @property
    def name_id(self) -> NDArray[np.uint32]:
        """Index into the source's name table."""
        ...

    @property
    def process(self) -> NDArray[np.uint32]:
        """Process that launched."""
        ...

    @property
    def device(self) -> NDArray[np.uint16]:
        """Device launched on."""
        ...

    @property
    def stream(self) -> NDArray[np.uint32]:
        """Stream launched into."""
        ...

    @property
    def gap(self) -> NDArray[np.bool_]:
        """Whether launches were lost right before this one."""
        ...


@dataclass(frozen=True, slots=True)
class Snippet:
    """A finished run of launches of one process on one device."""

    process: int
    device: int
    first_seq: int
    last_seq: int
    launches: int
    signature: Signature


@dataclass(slots=True)
class _Open:
    hashes: list[NDArray[np.uint64]] = field(default_factory=list)
    streams: list[NDArray[np.uint32]] = field(default_factory=list)
    first_seq: int = 0
    last_seq: int = 0
    length: int = 0


class SnippetCutter:
    """Holds one open snippet a (process, device)."""

    def __init__(self, snippet_launches: int, scheme: Scheme, identity: Identity = PLAIN) -> None:
        """Cut every `snippet_launches` launches; `identity` is the task's mode (see `identity.py`)."""
        compiled.prepare()
        self._length = snippet_launches
        self._scheme = scheme
        self._identity = identity
        self._open: dict[tuple[int, int], _Open] = {}
        self._names = NameHashes(scheme.names, identity.name_key)
        self.too_short = 0
        """Launches in runs shorter than one gram, which have no identity."""
        self.without_identity = 0
        """Snippets that were dropped: the key server was away, or the epoch's points were spent."""

    def push(self, launches: Launches, names: Sequence[str]) -> list[Snippet]:
        """Take launches; returns the snippets that they complete, in the order of their ends."""
        if len(launches.seq) == 0:
            return []
        hashes = self._names.of(names)[launches.name_id]
        owner = launches.process.astype(np.int64) << 16 | launches.device
        gaps = np.flatnonzero(launches.gap)
        broken = launches.process[gaps]
        here = {(int(key) >> 16, int(key) & 0xFFFF): key for key in np.unique(owner)}
        finished = self._end_all([each for each in self._open if each[0] in broken and each not in here])
        for place, key in here.items():
            rows = np.flatnonzero(owner == key)
            parts = np.split(rows, np.searchsorted(rows, gaps[broken == place[0]]))
            finished.extend(self._push_one(place, launches, hashes, parts))
        return sorted(finished, key=lambda snippet: snippet.last_seq)

    def finish(self) -> list[Snippet]:
        """End all open snippets: the applications have ended."""
        return self._end_all(list(self._open))

    def end_process(self, process: int) -> list[Snippet]:
        """End the open snippets of a process that has ended, on whatever devices."""
        return self._end_all([place for place in self._open if place[0] == process])

    def _end_all(self, places: list[tuple[int, int]]) -> list[Snippet]:
        ended = [self._end(place) for place in places]
        return [snippet for snippet in ended if snippet is not None]

    def _push_one(
        self,
        place: tuple[int, int],
        launches: Launches,
        hashes: NDArray[np.uint64],
        parts: list[NDArray[np.intp]],
    ) -> Iterator[Snippet]:
        """Rows of one place, split where launches of its process were lost, on whatever device."""
        for number, part in enumerate(parts):
            if number and (snippet := self._end(place)):
                yield snippet
            yield from self._fill(place, launches, hashes, part)

    def _fill(
        self,
        place: tuple[int, int],
        launches: Launches,
        hashes: NDArray[np.uint64],
        rows: NDArray[np.intp],
    ) -> Iterator[Snippet]:
        while len(rows):
            current = self._open.setdefault(place, _Open())
            taken, rows = np.split(rows, [self._length - current.length])
            if current.length == 0:
                current.first_seq = int(launches.seq[taken[0]])
            current.hashes.append(hashes[taken])
            current.streams.append(launches.stream[taken])
            current.last_seq = int(launches.seq[taken[-1]])
            current.length += len(taken)
            if current.length == self._length and (snippet := self._end(place)):
                yield snippet

    def _end(self, place: tuple[int, int]) -> Snippet | None:
        ended = self._open.pop(place, None)
        if ended is None:
            return None
        if ended.length < self._scheme.gram:
            self.too_short += ended.length
            return None
        hashes, streams = np.concatenate(ended.hashes), np.concatenate(ended.streams)
        signature = of_hashes(hashes, streams, self._scheme, salt=self._names.salt)
        try:
            shown = self._identity.shown(signature)
        except (TransportError, QuotaError):
            self.without_identity += 1
            return None
        return Snippet(*place, ended.first_seq, ended.last_seq, ended.length, shown)
