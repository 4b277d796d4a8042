"""Accuracy, joins and survival of snippets under loss, renaming and interleaving.

Accuracy is leave-one-out: a window counts when the most similar other window is of the same application and
above tau (equally near counts). It is wrong when another application's is strictly nearer and above tau, and
missed otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.recognition.data import Recorded, Window, lossy, same_code
from penrose_ray.snippet.cutter import SnippetCutter
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import Signature, of_hashes, similarities
from penrose_ray.snippet.names import NameHashes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penrose_ray.snippet.cutter import Snippet
    from penrose_ray.snippet.names import NamePolicy
    from penrose_ray.snippet.scheme import Scheme

TAU = 0.85
_Z = 1.959964


@dataclass(frozen=True)
class Share:
    """k of n, as a percentage with its 95 % Wilson interval (Wilson 1927)."""

    k: int
    n: int

    @property
    def percent(self) -> float:
        """100 k / n, NaN for n = 0."""
        return 100 * self.k / self.n if self.n else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper bound in percent."""
        if not self.n:
            return math.nan, math.nan
        p, z2 = self.k / self.n, _Z * _Z
        centre = p + z2 / (2 * self.n)
        half = _Z * math.sqrt(p * (1 - p) / self.n + z2 / (4 * self.n**2))
        return 100 * (centre - half) / (1 + z2 / self.n), 100 * (centre + half) / (1 + z2 / self.n)

    def __str__(self) -> str:
        low, high = self.interval
        low = max(low, 0.0)
        return f"{self.percent:.1f} % ({low:.1f} to {high:.1f}, n = {self.n})"


@dataclass(frozen=True)
class Recognition:
    """What became of each window."""

    right: NDArray[np.bool_]
    wrong: NDArray[np.bool_]

    @property
    def accuracy(self) -> Share:
        """Share of windows that were recognised."""
        return Share(int(self.right.sum()), len(self.right))


class Hasher:
    """Name hashes of runs, each table hashed once."""

    def __init__(self) -> None:
        self._tables: dict[tuple[Recorded, NamePolicy], NDArray[np.uint64]] = {}

    def signatures(self, windows: Sequence[Window], scheme: Scheme) -> NDArray[np.uint32]:
        """Values of each window's signature, shape (windows, values)."""
        return np.array([self.values(window, scheme) for window in windows]).reshape(-1, scheme.size)

    def values(self, window: Window, scheme: Scheme) -> NDArray[np.uint32]:
        """Values of one signature."""
        return of_hashes(self.table(window, scheme)[window.ids], window.streams, scheme).values

    def table(self, window: Window, scheme: Scheme) -> NDArray[np.uint64]:
        """Name hashes of a window's run."""
        key = (window.run, scheme.names)
        if key not in self._tables:
            self._tables[key] = NameHashes(scheme.names).of(window.run.names)
        return self._tables[key]


def pairwise(values: NDArray[np.uint32], others: NDArray[np.uint32] | None = None) -> NDArray[np.float32]:
    """Similarity of every signature to every one of `others` (to each other without)."""
    others = values if others is None else others
    return np.array([similarities(others, each) for each in values], np.float32).reshape(-1, len(others))


def recognise(similar: NDArray[np.float32], apps: Sequence[str], tau: float = TAU) -> Recognition:
    """Leave-one-out nearest neighbour over all windows."""
    labels = np.unique(np.array(apps), return_inverse=True)[1]
    same = labels[:, None] == labels[None, :]
    apart = similar.copy()
    np.fill_diagonal(apart, -1.0)
    own = np.where(same, apart, -1.0).max(axis=1, initial=-1.0)
    other = np.where(same, -1.0, apart).max(axis=1, initial=-1.0)
    return Recognition((own > tau) & (own >= other), (other > tau) & (other > own))


def joins(
    similar: NDArray[np.float32], windows: Sequence[Window], tau: float = TAU
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Pairs of families with windows above tau: unrelated ones, and twins."""
    unrelated: set[tuple[str, str]] = set()
    twins: set[tuple[str, str]] = set()
    for first, second in zip(*np.nonzero(similar > tau), strict=True):
        pair = windows[first].run.family, windows[second].run.family
        if pair[0] < pair[1]:
            (twins if same_code(*pair) else unrelated).add(pair)
    return unrelated, twins


def kept_at_loss(
    hasher: Hasher, windows: Sequence[Window], scheme: Scheme, share: float, clean: Recognition
) -> Share:
    """Of the windows recognised without loss, those recognised when all windows lose records."""
    rng = np.random.default_rng(int(share * 1e6) + 7)
    values = hasher.signatures([lossy(window, share, rng) for window in windows], scheme)
    lost = recognise(pairwise(values), [window.run.app for window in windows])
    return Share(int((lost.right & clean.right).sum()), int(clean.right.sum()))


def kept_when_renamed(
    hasher: Hasher, windows: Sequence[Window], scheme: Scheme, rng: np.random.Generator
) -> Share:
    """Windows that still match themselves after one kernel, drawn among those they use, is renamed."""
    kept = 0
    for window in windows:
        table = hasher.table(window, scheme).copy()
        used = np.unique(window.ids)
        table[rng.choice(used)] = rng.integers(0, 1 << 63, dtype=np.uint64)
        renamed = of_hashes(table[window.ids], window.streams, scheme).values
        kept += bool(pairwise(renamed[None, :], hasher.values(window, scheme)[None, :])[0, 0] > TAU)
    return Share(kept, len(windows))


def kept_in_reruns(hasher: Hasher, windows: Sequence[Window], scheme: Scheme) -> Share:
    """Windows of a second recording that match a window of the first one."""
    again = [window for window in windows if window.run.rerun]
    first = [window for window in windows if not window.run.rerun]
    similar = pairwise(hasher.signatures(again, scheme), hasher.signatures(first, scheme))
    apps = np.array([window.run.app for window in first])
    kept = sum(bool((similar[row][apps == window.run.app] > TAU).any()) for row, window in enumerate(again))
    return Share(kept, len(again))


def classes_per_application(hasher: Hasher, windows: Sequence[Window], scheme: Scheme) -> float:
    """Classes that an index makes of each application's windows by itself, mean over applications."""
    apps = dict.fromkeys(window.run.app for window in windows)
    made = 0
    for app in apps:
        index: SnippetIndex[int] = SnippetIndex(scheme.id, TAU)
        for window in windows:
            if window.run.app == app:
                shown = Signature(scheme.id, hasher.values(window, scheme))
                if index.find(shown) is None:
                    index.add(len(index), shown)
        made += len(index)
    return made / len(apps)


def interleaved(hasher: Hasher, windows: Sequence[Window], scheme: Scheme, pairs: int) -> Share:
    """Snippets of two processes that share a GPU, their launches in random order, found in their own class.

    The classes come from other windows of the same runs, recorded alone.
    """
    rng = np.random.default_rng(11)
    per_run: dict[str, list[Window]] = {}
    for window in windows:
        per_run.setdefault(window.run.name, []).append(window)
    index: SnippetIndex[str] = SnippetIndex(scheme.id, TAU)
    for name, own in per_run.items():
        for window in own[1:]:
            index.add(name, Signature(scheme.id, hasher.values(window, scheme)))
    names = sorted(name for name, own in per_run.items() if len(own) > 1)
    right = 0
    for _ in range(pairs):
        chosen = [per_run[str(name)][0] for name in rng.choice(names, 2, replace=False)]
        for window, snippet in zip(chosen, _cut_together(chosen, scheme, rng), strict=True):
            found = index.find(snippet.signature)
            right += found is not None and per_run[found[0]][0].run.family == window.run.family
    return Share(right, 2 * pairs)


def _cut_together(chosen: Sequence[Window], scheme: Scheme, rng: np.random.Generator) -> list[Snippet]:
    names = [name for window in chosen for name in window.run.names]
    process = rng.permutation(np.repeat(np.arange(len(chosen)), [len(window.ids) for window in chosen]))
    ids = np.empty(len(process), np.uint32)
    offset = 0
    for number, window in enumerate(chosen):
        ids[process == number] = window.ids + offset
        offset += len(window.run.names)
    zeros = np.zeros(len(ids), np.uint32)
    columns = Columns(np.arange(len(ids)), ids, process, zeros, zeros, zeros.astype(np.bool_))
    cutter = SnippetCutter(len(chosen[0].ids), scheme)
    return sorted(cutter.push(columns, names), key=lambda snippet: snippet.process)


class Columns(NamedTuple):
    """Launches for a cutter."""

    seq: NDArray[np.uint64]
    name_id: NDArray[np.uint32]
    process: NDArray[np.uint32]
    device: NDArray[np.uint16]
    stream: NDArray[np.uint32]
    gap: NDArray[np.bool_]
