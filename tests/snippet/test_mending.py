from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.snippet.grams import Launches, beginning, by_stream, grams, tally, windows
from penrose_ray.snippet.mending import mended
from penrose_ray.snippet.names import NameHashes
from penrose_ray.snippet.shape import shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

GRAM = 8


@pytest.fixture
def loop(program: Callable[..., NDArray[np.int64]], names: list[str]) -> NDArray[np.uint64]:
    return NameHashes().of(names)[program(3, 4000)]


@pytest.mark.parametrize("lost", [[1000], [1000, 1001], [700, 1000, 1900, 3333]])
def test_lost_launches_are_put_back_where_they_were(loop: NDArray[np.uint64], lost: list[int]) -> None:
    whole = mended(Launches(np.delete(loop, lost)), GRAM)

    assert whole.launches.hashes.tolist() == loop.tolist()
    assert whole.grams.counts.sum() == len(loop) - GRAM + 1


def test_a_window_without_loss_stays_as_it_is(loop: NDArray[np.uint64]) -> None:
    whole = mended(Launches(loop), GRAM)

    assert whole.launches.hashes is loop
    assert whole.plain is whole.grams


def test_one_percent_of_scattered_loss_is_almost_undone(loop: NDArray[np.uint64]) -> None:
    kept = loop[np.random.default_rng(8).random(len(loop)) >= 0.01]
    true = set(grams(Launches(loop), GRAM).tolist())

    def false_grams(launches: Launches) -> int:
        return len(set(grams(launches, GRAM).tolist()) - true)

    whole = mended(Launches(kept), GRAM)
    assert false_grams(Launches(kept)) > 100
    assert false_grams(whole.launches) < 15


def test_a_branch_that_is_taken_often_is_no_loss() -> None:
    """Every third iteration leaves a kernel out: that is the program, not the recorder."""
    body = np.arange(1, 21, dtype=np.uint64) * np.uint64(0x1234_5678_9ABC_DEF1)
    iterations = [np.delete(body, 10) if number % 3 < 2 else body for number in range(60)]
    launches = Launches(np.concatenate(iterations))

    whole = mended(launches, GRAM)

    assert len(whole.launches.hashes) == len(launches.hashes)


def test_streams_are_mended_each_by_itself(loop: NDArray[np.uint64]) -> None:
    other = loop[::-1].copy()
    damaged = Launches(np.concatenate((np.delete(loop, 1000), np.delete(other, 500))), (0, len(loop) - 1))

    whole = mended(damaged, GRAM)

    assert whole.launches.starts == (0, len(loop))
    assert whole.launches.hashes.tolist() == [*loop.tolist(), *other.tolist()]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=120))
def test_mending_takes_nothing_away_and_tallies_what_it_returns(ids: list[int]) -> None:
    hashes = NameHashes().of(["a", "b", "c"])[np.array(ids)]

    whole = mended(Launches(hashes), GRAM)

    rest = iter(whole.launches.hashes.tolist())
    assert all(each in rest for each in hashes.tolist()), "the launches are a subsequence of the mended ones"
    for launches, found in ((Launches(hashes), whole.plain), (whole.launches, whole.grams)):
        expected = Counter(grams(launches, GRAM).tolist())
        assert dict(zip(found.values.tolist(), found.counts.tolist(), strict=True)) == expected


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=60), st.integers(1, 12))
def test_a_window_hash_is_the_polynomial(values: list[int], size: int) -> None:
    size = min(size, len(values))
    multiplier = 0x9E37_79B9_7F4A_7C15
    expected = [
        sum(x * multiplier ** (size - 1 - j) for j, x in enumerate(values[start : start + size])) % 2**64
        for start in range(len(values) - size + 1)
    ]

    assert windows(np.array(values, np.uint64), size).tolist() == expected


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=80))
def test_grams_never_reach_from_one_stream_into_another(launches: list[tuple[int, int]]) -> None:
    names = NameHashes().of(list("abcde"))
    ids, streams = (np.array(column) for column in zip(*launches, strict=True))
    expected: Counter[int] = Counter()
    for stream in set(streams.tolist()):
        row = names[ids[streams == stream]]
        expected.update(windows(row, min(GRAM, len(row))).tolist())

    assert Counter(grams(by_stream(names[ids], streams), GRAM).tolist()) == expected


@given(st.lists(st.sampled_from([2**20, 2**40, 2**63, 2**63 + 2**30]), min_size=1, max_size=50))
def test_a_tally_counts_each_value(values: list[int]) -> None:
    found = tally(np.array(values, np.uint64))

    assert dict(zip(found.values.tolist(), found.counts.tolist(), strict=True)) == Counter(values)
    assert np.array(values, np.uint64)[found.rows].tolist() == found.values.tolist()
    for number, value in enumerate(found.values.tolist()):
        assert found.rows_of(number).tolist() == [row for row, each in enumerate(values) if each == value]


def test_a_shape_is_the_distance_to_the_last_launch_of_the_same_kernel() -> None:
    names = NameHashes().of(["a", "b", "c"])

    def pattern(ids: list[int], starts: tuple[int, ...] = (0,), salt: int = 0) -> list[int]:
        return shape(Launches(names[ids], starts), 3, salt)[0].hashes.tolist()

    aab = pattern([0, 0, 1, 0])
    assert aab == pattern([2, 2, 0, 2]), "names do not matter"
    assert aab[0] == aab[2], "a first launch has no distance"
    assert len({aab[0], aab[1], aab[3]}) == 3, "distances none, 1 and 2"
    far = pattern([0, 1, 1, 1, 0])
    assert far[4] == far[0], "4 is further than 3"
    apart = pattern([0, 0, 0, 0], starts=(0, 2))
    assert apart[2] == apart[0], "another stream's launches are none of its own"
    assert set(pattern([0, 0, 1], salt=5)).isdisjoint(pattern([0, 0, 1]))


@pytest.mark.parametrize("length", [1000, 70_000])
def test_a_shape_names_every_kernel_in_use(length: int) -> None:
    names = NameHashes().of([f"kernel{number}x" for number in range(40)])
    ids = np.random.default_rng(1).integers(0, 40, length)

    _, used = shape(Launches(names[ids]), 31, 0)

    assert set(used.tolist()) == set(names.tolist())


@pytest.mark.parametrize("most", [10, 100, 400])
def test_a_beginning_takes_its_share_of_each_stream(loop: NDArray[np.uint64], most: int) -> None:
    launches = Launches(loop[:300], (0, 200, 210))

    kept = beginning(launches, most)

    lengths = np.subtract(kept.ends, kept.starts).tolist()
    assert lengths == [min(each, -(-each * most // 300)) for each in (200, 10, 90)]
    for start, first, length in zip(launches.starts, kept.starts, lengths, strict=True):
        assert kept.hashes[first : first + length].tolist() == loop[start : start + length].tolist()
