"""The experiments behind the default scheme, as the Markdown table of docs/snippets.md.

`python -m benchmarks.recognition.experiments`: each variant on the tuning half of the corpus' families and on
the other half.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.recognition import data
from benchmarks.recognition.measures import (
    Hasher,
    Share,
    joins,
    kept_at_loss,
    kept_in_reruns,
    kept_when_renamed,
    pairwise,
    recognise,
)
from penrose_ray.snippet.scheme import EVERYTHING, SCHEMES, Scheme, View

LENGTHS = (10_000, 5_000, 2_000, 1_000)
MENDED = SCHEMES["g8-mended-v1"]
PLAIN = SCHEMES["g8-plain-v1"]
VARIANTS = {
    "plain 8-grams (published)": PLAIN,
    "grams seen twice": replace(PLAIN, views=(View(floor=2),), least_grams=20),
    "grams seen 16 times": replace(PLAIN, views=(View(floor=16),), least_grams=20),
    "relative filter 0.15 / 2": replace(PLAIN, views=(View(0.15, 2.0),), least_grams=20),
    "relative filter 0.4 / 8": replace(PLAIN, views=(View(0.4, 8.0),), least_grams=20),
    "mended, all grams": replace(PLAIN, views=(EVERYTHING, EVERYTHING), mended=True),
    "three views, not mended": replace(MENDED, mended=False, shape=0),
    "three views, mended": replace(MENDED, shape=0),
    "three views, mended, shape (default)": MENDED,
    "default with 4-grams": replace(MENDED, gram=4),
    "default with 6-grams": replace(MENDED, gram=6),
    "default with 12-grams": replace(MENDED, gram=12),
}


def main() -> None:
    """Print the table."""
    folder = data.root()
    if folder is None:
        print("PENROSE_TRACES is not set.")
        return
    runs = data.corpus(folder)
    halves = [[run for run in runs if data.is_tuning_half(run.family) is tuning] for tuning in (True, False)]
    hasher = Hasher()
    print(
        "| variant | half | " + " | ".join(f"{each:,}" for each in LENGTHS) + " | 0.5 % lost | 1 % lost |"
        " renamed | reruns | unrelated joins |"
    )
    print("|" + "---|" * 11)
    for name, scheme in VARIANTS.items():
        for half, chosen in zip(("tuning", "report"), halves, strict=True):
            print(f"| {name} | {half} | " + " | ".join(_row(hasher, chosen, scheme)) + " |", flush=True)


def _row(hasher: Hasher, runs: list[data.Recorded], scheme: Scheme) -> list[str]:
    shares: list[Share] = []
    unrelated: set[tuple[str, str]] = set()
    for launches in LENGTHS:
        windows = data.windows(runs, launches)
        similar = pairwise(hasher.signatures(windows, scheme))
        found = recognise(similar, [window.run.app for window in windows])
        shares.append(found.accuracy)
        unrelated |= joins(similar, windows)[0]
        if launches == LENGTHS[0]:
            longest, clean = windows, found
    shares += [kept_at_loss(hasher, longest, scheme, lost, clean) for lost in (0.005, 0.01)]
    shares.append(kept_when_renamed(hasher, longest, scheme, np.random.default_rng(5)))
    shares.append(kept_in_reruns(hasher, longest, scheme))
    return [*map(_short, shares), ", ".join("=".join(pair) for pair in sorted(unrelated)) or "none"]


def _short(share: Share) -> str:
    low, high = share.interval
    return f"{share.percent:.1f} ({low:.0f}-{high:.0f}; {share.n})"


if __name__ == "__main__":
    main()
