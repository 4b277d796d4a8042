"""How far any set of kernel names can go on GPU streams at L = 1,000: exact sets, no MinHash.

`python -m benchmarks.recognition.limits` prints the table of docs/snippets.md: windows that the default
scheme or a further view recognises, and how near that view brings kin that must stay apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.recognition import data
from benchmarks.recognition.measures import TAU, Hasher, Share, pairwise, recognise
from penrose_ray.snippet.grams import beginning, by_stream, grams
from penrose_ray.snippet.mending import mended
from penrose_ray.snippet.scheme import DEFAULT_SCHEME, SCHEMES
from penrose_ray.snippet.shape import shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from benchmarks.recognition.data import Window

LAUNCHES, SEEDS = 1_000, 3
SCHEME = SCHEMES[DEFAULT_SCHEME]
SIZES, SHAPE = (1, 2, 4, 8), 0
"""Sizes of name grams; the set under SHAPE holds grams of 32 distances."""
VIEWS: dict[str, dict[int, float]] = {
    "4-grams": {4: 1.0},
    "4-grams and 8-grams, mean": {4: 0.5, 8: 0.5},
    "names and shape, 1 : 1": {1: 0.5, SHAPE: 0.5},
    "names and shape, 7 : 3": {1: 0.7, SHAPE: 0.3},
    "names and 8-grams, mean": {1: 0.5, 8: 0.5},
    "2-grams": {2: 1.0},
    "names": {1: 1.0},
}
Sets = dict[int, "NDArray[np.uint64]"]


def main() -> None:
    """Print the table."""
    folder = data.root()
    if folder is None:
        print("PENROSE_TRACES is not set.")
        return
    hasher = Hasher()
    near = _nearest_kin([data.Window(run, run.ids, None) for run in data.siblings(folder)], hasher)
    runs = data.gpu_streams(folder)
    right = {(name, half): 0 for name in ("", *VIEWS) for half in (True, False)}
    total = {True: 0, False: 0}
    for seed in range(SEEDS):
        windows = data.random_windows(runs, LAUNCHES, np.random.default_rng(seed))
        apps = [window.run.app for window in windows]
        default = recognise(pairwise(hasher.signatures(windows, SCHEME)), apps).right
        best = _best_views([_sets(window, hasher) for window in windows], apps)
        for row, window in enumerate(windows):
            half = data.is_tuning_half(window.run.family)
            total[half] += 1
            for name in ("", *VIEWS):
                right[name, half] += bool(default[row] or (name and best[name][row] > TAU))
    print("| with a further view | tuning half | other half | nearest kin |\n|---|---|---|---|")
    for name in ("", *VIEWS):
        shares = " | ".join(str(Share(right[name, half], total[half])) for half in (True, False))
        print(f"| {name or 'none (the default)'} | {shares} | {f'{near[name]:.2f}' if name else '-'} |")


def _sets(window: Window, hasher: Hasher) -> Sets:
    streams = None if window.streams is None else window.streams
    whole = mended(by_stream(hasher.table(window, SCHEME)[window.ids], streams), SCHEME.gram).launches
    distances, _ = shape(beginning(whole, 4096), SCHEME.shape - 1, 0)
    found = {size: np.unique(grams(whole, size)) for size in SIZES}
    return {**found, SHAPE: np.unique(grams(distances, SCHEME.shape))}


def _similar(first: Sets, second: Sets) -> dict[str, float]:
    """Exact similarity of two windows in each view."""
    exact = {key: _jaccard(first[key], second[key]) for key in first}
    return {name: sum(part * exact[key] for key, part in parts.items()) for name, parts in VIEWS.items()}


def _jaccard(first: NDArray[np.uint64], second: NDArray[np.uint64]) -> float:
    common = len(np.intersect1d(first, second, assume_unique=True))
    return common / (len(first) + len(second) - common)


def _best_views(sets: Sequence[Sets], apps: Sequence[str]) -> Mapping[str, NDArray[np.float64]]:
    """For each view and window the similarity of the nearest other window of its application."""
    best = {name: np.zeros(len(sets)) for name in VIEWS}
    for row, own in enumerate(sets):
        for other in range(row):
            if apps[row] == apps[other]:
                for name, value in _similar(own, sets[other]).items():
                    best[name][[row, other]] = np.maximum(best[name][[row, other]], value)
    return best


def _nearest_kin(windows: Sequence[Window], hasher: Hasher) -> dict[str, float]:
    """Highest similarity of two programs of one library that are not the same model, on one GPU."""
    sets = [_sets(window, hasher) for window in windows]
    near = dict.fromkeys(VIEWS, 0.0)
    for row, window in enumerate(windows):
        for other in range(row):
            apart = windows[other].run.family != window.run.family
            if apart and windows[other].run.name.split("-")[0] == window.run.name.split("-")[0]:
                for name, value in _similar(sets[row], sets[other]).items():
                    near[name] = max(near[name], value)
    return near


if __name__ == "__main__":
    main()
