"""Real launch streams: skipped unless PENROSE_TRACES names the folder that holds them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from benchmarks.recognition import data
from benchmarks.recognition.measures import (
    Hasher,
    Share,
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
    from benchmarks.recognition.data import Recorded, Window

FOLDER = os.environ.get("PENROSE_TRACES", "")
OWN, PLAIN = SCHEMES[DEFAULT_SCHEME], SCHEMES["g8-plain-v1"]

needs = pytest.mark.skipif(not FOLDER, reason="PENROSE_TRACES is not set")


@pytest.fixture(scope="module")
def hasher() -> Hasher:
    return Hasher()


@pytest.fixture(scope="module")
def corpus() -> list[Recorded]:
    return data.corpus(Path(FOLDER))


@pytest.fixture(scope="module")
def long_windows(corpus: list[Recorded]) -> list[Window]:
    return data.windows(corpus, 10_000)


def apps(windows: list[Window]) -> list[str]:
    return [window.run.app for window in windows]


@needs
@pytest.mark.parametrize(("launches", "goal"), [(10_000, 98), (1_000, 92)])
def test_applications_are_recognised_and_unrelated_ones_kept_apart(
    hasher: Hasher, corpus: list[Recorded], launches: int, goal: int
) -> None:
    windows = data.windows(corpus, launches)
    similar = pairwise(hasher.signatures(windows, OWN))

    own = recognise(similar, apps(windows)).accuracy
    plain = recognise(pairwise(hasher.signatures(windows, PLAIN)), apps(windows)).accuracy

    assert own.percent >= goal
    assert own.percent >= plain.percent
    assert joins(similar, windows)[0] == set()


@needs
@pytest.mark.parametrize("launches", [10_000, 1_000])
def test_gpu_streams_are_recognised_no_worse_than_by_plain_signatures(hasher: Hasher, launches: int) -> None:
    windows = data.random_windows(data.gpu_streams(Path(FOLDER)), launches, np.random.default_rng(0))

    own, plain = (
        recognise(pairwise(hasher.signatures(windows, of)), apps(windows)).accuracy for of in (OWN, PLAIN)
    )

    assert own.k >= plain.k


@needs
def test_models_of_one_library_stay_apart(hasher: Hasher) -> None:
    windows = [data.Window(run, run.ids, None) for run in data.siblings(Path(FOLDER))]
    similar = pairwise(hasher.signatures(windows, OWN))
    families = np.array([window.run.family for window in windows])

    assert len(set(families.tolist())) == 3
    assert similar[families[:, None] != families[None, :]].max() < 0.85


@needs
def test_matches_survive_loss_renaming_and_other_data(hasher: Hasher, long_windows: list[Window]) -> None:
    clean = recognise(pairwise(hasher.signatures(long_windows, OWN)), apps(long_windows))

    kept = [kept_at_loss(hasher, long_windows, OWN, share, clean).percent for share in (0.001, 0.005, 0.01)]
    renamed = kept_when_renamed(hasher, long_windows, OWN, np.random.default_rng(5))

    assert [each >= goal for each, goal in zip(kept, (97, 95, 92), strict=True)] == [True, True, True]
    assert renamed.percent >= 80
    assert kept_in_reruns(hasher, long_windows, OWN).percent >= 97


@needs
def test_two_processes_on_one_gpu_are_recognised_each(hasher: Hasher, long_windows: list[Window]) -> None:
    found = interleaved(hasher, long_windows, OWN, pairs=10)

    assert found == Share(20, 20)


@pytest.mark.parametrize(
    ("k", "n", "low", "high"), [(0, 10, 0.0, 27.75), (5, 10, 23.66, 76.34), (98, 100, 93.00, 99.45)]
)
def test_an_interval_is_wilson_s(k: int, n: int, low: float, high: float) -> None:
    """Values of the formula in Newcombe 1998, table I's method 3."""
    assert Share(k, n).interval == pytest.approx((low, high), abs=0.01)
