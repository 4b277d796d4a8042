"""Time of a signature against datasketch and rensa, and time and memory of the index."""

from __future__ import annotations

import time
import tracemalloc
from statistics import median
from typing import TYPE_CHECKING

import datasketch
import numpy as np
import rensa

from benchmarks.harness import Contender, Timing, take_turns, without_native
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import FUNCTIONS, Signature

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.recognition.data import Window
    from benchmarks.recognition.measures import Hasher
    from penrose_ray.snippet.scheme import Scheme

_GRAM = 8
_REPEATS = 10
_ASKED = 2_000
OWN, NUMPY, PLAIN = "mended", "mended, numpy alone", "plain set"
BULK, LOOP, RENSA = "datasketch bulk", "datasketch update", "rensa"


def signature_timings(
    hasher: Hasher, windows: Sequence[Window], scheme: Scheme, plain: Scheme, rounds: int
) -> dict[str, Timing]:
    """Milliseconds from name ids to a signature, all contenders in turn on the same windows."""
    for window in windows:
        hasher.table(window, scheme)

    def each(work: Callable[[Window], object], repeats: int = 1) -> Callable[[], object]:
        return lambda: [work(window) for _ in range(repeats) for window in windows]

    own = [
        Contender(
            name, each(lambda window, of=of: hasher.values(window, of), _REPEATS), _REPEATS * len(windows)
        )  # type: ignore[misc]
        for name, of in ((OWN, scheme), (PLAIN, plain))
    ]
    others = [
        Contender(NUMPY, _by_numpy(own[0].run), own[0].operations),
        Contender(BULK, each(_bulk), len(windows)),
        Contender(LOOP, each(_loop), len(windows)),
        Contender(RENSA, each(_rensa), len(windows)),
    ]
    return take_turns([*own, *others], rounds=rounds)


def _by_numpy(work: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        with without_native():
            return work()

    return run


def _grams(window: Window) -> list[bytes]:
    rows = np.lib.stride_tricks.sliding_window_view(window.ids.astype(np.uint16), _GRAM)
    raw = np.ascontiguousarray(rows).tobytes()
    width = 2 * _GRAM
    return [raw[start : start + width] for start in range(0, len(raw), width)]


def _bulk(window: Window) -> object:
    return datasketch.MinHash.bulk([set(_grams(window))], num_perm=FUNCTIONS)


def _loop(window: Window) -> object:
    sketch = datasketch.MinHash(num_perm=FUNCTIONS)
    for gram in _grams(window):
        sketch.update(gram)
    return sketch


def _rensa(window: Window) -> object:
    sketch = rensa.RMinHash(num_perm=FUNCTIONS, seed=42)
    sketch.update([gram.hex() for gram in set(_grams(window))])
    return sketch.digest()


def random_signatures(scheme: Scheme, count: int, seed: int) -> list[Signature]:
    """Signatures that resemble nothing, as a new application's does."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 1 << 32, (count, scheme.size), dtype=np.uint32) & ~np.uint32(1)
    return [Signature(scheme.id, each) for each in values]


def filled_index(scheme: Scheme, classes: int) -> SnippetIndex[int]:
    """An index of that many classes."""
    index: SnippetIndex[int] = SnippetIndex(scheme.id, 0.85)
    for start in range(0, classes, _ASKED):
        for offset, each in enumerate(random_signatures(scheme, min(_ASKED, classes - start), start)):
            index.add(start + offset, each)
    return index


def index_megabytes(scheme: Scheme, signatures: Sequence[Signature]) -> float:
    """Memory that an index allocates for these classes, each looked up once after it was added."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    index: SnippetIndex[bytes] = SnippetIndex(scheme.id, 0.85)
    for number, each in enumerate(signatures):
        index.add(number.to_bytes(16, "big"), each)
        index.find(each)
    used = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return used / 1e6


def lookup_us(index: SnippetIndex[int], asked: Sequence[Signature]) -> float:
    """Median microseconds to look one signature up."""
    times = []
    for each in asked:
        start = time.perf_counter_ns()
        index.find(each)
        times.append(time.perf_counter_ns() - start)
    return median(times) / 1e3
