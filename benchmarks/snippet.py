"""Snippets: accuracy on recorded streams, survival of loss and renaming, speed, index.

The recorded streams are found through PENROSE_TRACES; without it only timings are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from benchmarks.harness import arguments, finish, show, significant
from benchmarks.recognition import data, speed
from benchmarks.recognition.measures import (
    TAU,
    Hasher,
    Share,
    classes_per_application,
    interleaved,
    joins,
    kept_at_loss,
    kept_in_reruns,
    kept_when_renamed,
    pairwise,
    recognise,
)
from penrose_ray.snippet.scheme import DEFAULT_SCHEME, SCHEMES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.recognition.data import Recorded, Window
    from penrose_ray.snippet.scheme import Scheme

LENGTHS = (10_000, 5_000, 2_000, 1_000)
LOSSES = {"0.1": 0.001, "0.5": 0.005, "1": 0.01}
SEEDS = 3
PAIRS = 40
TIMED_WINDOWS = 5
OWN, PLAIN = SCHEMES[DEFAULT_SCHEME], SCHEMES["g8-plain-v1"]


class Report:
    """Figures for the JSON object; each percentage keeps its n and interval beside it."""

    def __init__(self, *, quiet: bool) -> None:
        self.figures: dict[str, object] = {}
        self._intervals: dict[str, object] = {}
        self._quiet = quiet

    def share(self, name: str, shares: Share | dict[str, Share]) -> None:
        """Enter one percentage, or several by name."""
        many = shares if isinstance(shares, dict) else {"": shares}
        percents = {key: round(share.percent, 1) for key, share in many.items()}
        bounds = {
            key: [share.n, *(round(bound, 1) for bound in share.interval)] for key, share in many.items()
        }
        single = not isinstance(shares, dict)
        self.figures[name] = percents[""] if single else percents
        self._intervals[name] = bounds[""] if single else bounds
        if not self._quiet:
            for key, share in many.items():
                print(f"{name + ' ' + key:<44} {share}")

    def value(self, name: str, value: object) -> None:
        """Enter any other figure."""
        self.figures[name] = value
        if not self._quiet:
            print(f"{name:<44} {value}")

    def finished(self) -> dict[str, object]:
        """All of it; `n_low_high` has n and the 95 % Wilson interval of each percentage."""
        return {**self.figures, "n_low_high": self._intervals}


def main() -> None:
    """Print the figures, then one JSON object."""
    options = arguments("Recognition of snippets.")
    report, hasher = Report(quiet=options.json), Hasher()
    folder = data.root()
    if folder is None:
        print("PENROSE_TRACES is not set: no figures on recorded streams.")
        timed = [data.Window(_synthetic(), _synthetic().ids, None)]
    else:
        runs = data.corpus(folder)
        timed = _accuracy(report, hasher, runs)
        _gpu(report, hasher, data.gpu_streams(folder))
        _kin(report, hasher, folder)
    timings = speed.signature_timings(hasher, timed, OWN, PLAIN, options.rounds)
    if not options.json:
        show(timings)
    own_s = timings[speed.OWN].median_s
    report.value("minhash_ms", significant(own_s * 1e3, 3))
    report.value("minhash_numpy_ms", significant(timings[speed.NUMPY].median_s * 1e3, 3))
    report.value("minhash_plain_ms", significant(timings[speed.PLAIN].median_s * 1e3, 3))
    report.value("minhash_vs_datasketch_bulk_ratio", significant(timings[speed.BULK].median_s / own_s, 3))
    report.value("minhash_vs_datasketch_update_ratio", significant(timings[speed.LOOP].median_s / own_s, 3))
    report.value("minhash_vs_rensa_ratio", significant(timings[speed.RENSA].median_s / own_s, 3))
    _index(report)
    finish(report.finished())


def _accuracy(report: Report, hasher: Hasher, runs: Sequence[Recorded]) -> list[Window]:
    """Figures on the corpus; returns windows for the timings."""
    own: dict[str, Share] = {}
    held_out: dict[str, Share] = {}
    plain: dict[str, Share] = {}
    unrelated: set[tuple[str, str]] = set()
    twins: set[tuple[str, str]] = set()
    for launches in LENGTHS:
        windows = data.windows(runs, launches)
        apps = [window.run.app for window in windows]
        similar = pairwise(hasher.signatures(windows, OWN))
        found = recognise(similar, apps)
        own[str(launches)] = found.accuracy
        reported = np.array([not data.is_tuning_half(window.run.family) for window in windows])
        held_out[str(launches)] = recognise(
            similar[np.ix_(reported, reported)],
            [app for app, kept in zip(apps, reported, strict=True) if kept],
        ).accuracy
        plain[str(launches)] = recognise(pairwise(hasher.signatures(windows, PLAIN)), apps).accuracy
        pairs = joins(similar, windows)
        unrelated |= pairs[0]
        twins |= pairs[1]
        if launches == LENGTHS[0]:
            longest, clean = windows, found
    report.share("accuracy", own)
    report.share("baseline_accuracy", plain)
    report.share("held_out_accuracy", held_out)
    report.value("wrong_joins", len(unrelated))
    report.value("joined_families", sorted(map(list, unrelated)))
    report.value("joined_twins", sorted(map(list, twins)))
    for name, of in (("kept_at_loss", OWN), ("baseline_kept_at_loss", PLAIN)):
        base = (
            clean
            if of is OWN
            else recognise(
                pairwise(hasher.signatures(longest, PLAIN)), [window.run.app for window in longest]
            )
        )
        report.share(
            name, {key: kept_at_loss(hasher, longest, of, lost, base) for key, lost in LOSSES.items()}
        )
    _survival(report, hasher, longest)
    spread = np.linspace(0, len(longest) - 1, TIMED_WINDOWS).round().astype(int)
    return [longest[place] for place in spread]


def _survival(report: Report, hasher: Hasher, windows: Sequence[Window]) -> None:
    for prefix, of in (("", OWN), ("baseline_", PLAIN)):
        rng = np.random.default_rng(5)
        report.share(f"{prefix}kept_renamed_percent", kept_when_renamed(hasher, windows, of, rng))
        report.share(f"{prefix}kept_rerun_percent", kept_in_reruns(hasher, windows, of))
        report.value(
            f"{prefix}classes_per_application",
            significant(classes_per_application(hasher, windows, of), 3),
        )
    report.share("interleaved_recognised_percent", interleaved(hasher, windows, OWN, PAIRS))


def _gpu(report: Report, hasher: Hasher, runs: Sequence[Recorded]) -> None:
    for name, of in (("gpu_accuracy", OWN), ("gpu_baseline_accuracy", PLAIN)):
        report.share(name, {str(launches): _gpu_share(hasher, runs, launches, of) for launches in LENGTHS})


def _gpu_share(hasher: Hasher, runs: Sequence[Recorded], launches: int, of: Scheme) -> Share:
    right = total = 0
    for seed in range(SEEDS):
        windows = data.random_windows(runs, launches, np.random.default_rng(seed))
        if windows:
            similar = pairwise(hasher.signatures(windows, of))
            found = recognise(similar, [window.run.app for window in windows]).accuracy
            right, total = right + found.k, total + found.n
    return Share(right, total)


def _kin(report: Report, hasher: Hasher, folder: Path) -> None:
    """Models of one library that must stay apart."""
    windows = [data.Window(run, run.ids, None) for run in data.siblings(folder)]
    similar = pairwise(hasher.signatures(windows, OWN))
    nearest = [
        float(similar[first, second])
        for first in range(len(windows))
        for second in range(first)
        if windows[first].run.family != windows[second].run.family
    ]
    report.value("kin_joined", sum(each > TAU for each in nearest))
    report.value("kin_highest_similarity", round(max(nearest, default=0.0), 3))


def _index(report: Report) -> None:
    new = speed.random_signatures(OWN, 1_000, seed=1)
    report.value(
        "index_mb_2000", significant(speed.index_megabytes(OWN, speed.random_signatures(OWN, 2_000, 2)), 3)
    )
    small = speed.filled_index(OWN, 2_000)
    report.value("lookup_us_2000", significant(speed.lookup_us(small, new), 3))
    known = speed.random_signatures(OWN, 2_000, seed=0)
    speed.lookup_us(small, known)
    report.value("repeat_us", significant(speed.lookup_us(small, known), 3))
    report.value("lookup_us_200000", significant(speed.lookup_us(speed.filled_index(OWN, 200_000), new), 3))


def _synthetic() -> Recorded:
    """A loop of 130 kernels, for timings without recordings."""
    loop = np.random.default_rng(3).integers(0, 60, 130)
    names = tuple(f"kernel_{number}x" for number in range(60))
    return data.Recorded("synthetic", "synthetic", "synthetic", names, np.tile(loop, 77)[:10_000])


if __name__ == "__main__":
    main()
