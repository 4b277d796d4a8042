from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.snippet.bands import BandTable, band_keys
from penrose_ray.snippet.index import SnippetIndex
from penrose_ray.snippet.minhash import Signature, similarities
from penrose_ray.snippet.scheme import FUNCTIONS

PLAIN = "g8-plain-v1"
MENDED = "g8-mended-v1"


def random_signature(rng: np.random.Generator, scheme: str = PLAIN, values: int = FUNCTIONS) -> Signature:
    return Signature(scheme, rng.integers(0, 2**32, values, dtype=np.uint32) & ~np.uint32(1))


def near(signature: Signature, similarity: float, rng: np.random.Generator) -> Signature:
    """A signature whose estimate to `signature` is exactly `similarity`, in every view."""
    values = signature.values.copy().reshape(-1, FUNCTIONS)
    for view in values:
        changed = rng.choice(FUNCTIONS, round((1 - similarity) * FUNCTIONS), replace=False)
        view[changed] += np.uint32(2)
    return Signature(signature.scheme, values.reshape(-1))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(42)


def test_a_signature_joins_above_tau_and_not_at_it(rng: np.random.Generator) -> None:
    index: SnippetIndex[str] = SnippetIndex(PLAIN, 0.85)
    founder = random_signature(rng)
    index.add("bert", founder)

    assert index.find(near(founder, 0.86, rng)) == ("bert", 0.86)
    assert index.find(near(founder, 0.85, rng)) is None
    assert index.find(random_signature(rng)) is None


@pytest.mark.parametrize("others", [10, 3000])
def test_the_nearest_class_wins_and_the_oldest_of_equals(rng: np.random.Generator, others: int) -> None:
    index: SnippetIndex[str] = SnippetIndex(PLAIN, 0.85)
    wanted = random_signature(rng)
    for number in range(others):
        index.add(f"other{number}", random_signature(rng))
    for key, similarity in (("far", 0.88), ("near", 0.95), ("twin", 0.95)):
        index.add(key, near(wanted, similarity, rng))

    assert index.find(wanted) == ("near", 0.95)
    assert len(index) == others + 3


def test_bands_lose_next_to_no_match(rng: np.random.Generator) -> None:
    """Against comparing with every representative, which is what bands stand in for."""
    index: SnippetIndex[int] = SnippetIndex(MENDED, 0.85)
    founders = [random_signature(rng, MENDED, 4 * FUNCTIONS) for _ in range(1500)]
    for key, founder in enumerate(founders):
        index.add(key, founder)

    missed = sum(
        index.find(near(founder, similarity, rng)) != (key, similarity)
        for key, founder in enumerate(founders)
        for similarity in (0.86, 0.9, 0.97)
    )

    assert missed <= 2


def test_the_mended_scheme_joins_by_its_best_view(rng: np.random.Generator) -> None:
    index: SnippetIndex[str] = SnippetIndex(MENDED, 0.85)
    founder = random_signature(rng, MENDED, 4 * FUNCTIONS)
    for number in range(200):
        index.add(f"other{number}", random_signature(rng, MENDED, 4 * FUNCTIONS))
    index.add("wanted", founder)
    other = random_signature(rng, MENDED, 4 * FUNCTIONS)
    other.values[2 * FUNCTIONS : 3 * FUNCTIONS] = founder.values[2 * FUNCTIONS : 3 * FUNCTIONS]

    assert index.find(other) == ("wanted", 1.0)


def test_merged_classes_answer_as_one(rng: np.random.Generator) -> None:
    index: SnippetIndex[str] = SnippetIndex(PLAIN, 0.85)
    first, second = random_signature(rng), random_signature(rng)
    index.add("kept", first)
    index.add("gone", second)
    index.find(second)

    index.merge("kept", "gone")

    assert index.find(second) == ("kept", 1.0)
    assert index.find(near(second, 0.9, rng)) == ("kept", 0.9)
    assert len(index) == 1
    assert "gone" not in index
    assert index.representative("kept").to_bytes() == first.to_bytes()
    with pytest.raises(KeyError):
        index.merge("kept", "gone")


def test_merging_a_class_with_itself_changes_nothing(rng: np.random.Generator) -> None:
    index: SnippetIndex[str] = SnippetIndex(PLAIN, 0.85)
    founder = random_signature(rng)
    index.add("one", founder)

    index.merge("one", "one")

    assert index.find(founder) == ("one", 1.0)


def test_a_removed_class_is_found_no_more(rng: np.random.Generator) -> None:
    index: SnippetIndex[str] = SnippetIndex(PLAIN, 0.85)
    first, second = random_signature(rng), None
    second = near(first, 0.9, rng)
    index.add("first", first)
    index.add("second", second)
    index.find(first)

    (removed,) = index.remove("first")

    assert removed.to_bytes() == first.to_bytes()
    assert index.find(first) == ("second", 0.9)
    with pytest.raises(KeyError):
        index.representative("first")


def test_a_repeat_stays_in_its_class_until_repeats_are_forgotten(rng: np.random.Generator) -> None:
    index: SnippetIndex[str] = SnippetIndex(PLAIN, 0.85)
    founder = random_signature(rng)
    repeated = near(founder, 0.9, rng)
    index.add("old", founder)
    assert index.find(repeated) == ("old", 0.9)

    index.add("new", repeated)

    assert index.find(repeated) == ("old", 0.9)
    index.forget_repeats()
    assert index.find(repeated) == ("new", 1.0)


def test_classes_are_listed_in_the_order_in_which_they_were_founded(rng: np.random.Generator) -> None:
    index: SnippetIndex[int] = SnippetIndex(PLAIN, 0.85)
    founders = [random_signature(rng) for _ in range(300)]
    for key, founder in enumerate(founders):
        index.add(key, founder)

    assert [(key, each.to_bytes()) for key, each in index] == [
        (key, founder.to_bytes()) for key, founder in enumerate(founders)
    ]
    assert [index.find(each) for each in founders[:3]] == [(0, 1.0), (1, 1.0), (2, 1.0)]


def test_signatures_of_another_scheme_are_refused(rng: np.random.Generator) -> None:
    index: SnippetIndex[str] = SnippetIndex(PLAIN, 0.85)
    other = random_signature(rng, "g8-recurring-v1")

    with pytest.raises(ConfigError, match="the task's is g8-plain-v1"):
        index.find(other)
    with pytest.raises(ConfigError, match="the task's is g8-plain-v1"):
        index.add("x", other)
    with pytest.raises(ConfigError, match="no snippet scheme"):
        SnippetIndex("g9", 0.85)


def test_two_thousand_applications_take_less_than_ten_megabytes(rng: np.random.Generator) -> None:
    index: SnippetIndex[bytes] = SnippetIndex(MENDED, 0.85)
    for number in range(2000):
        index.add(number.to_bytes(16, "big"), random_signature(rng, MENDED, 4 * FUNCTIONS))

    assert index.size_bytes < 8e6


def test_a_band_that_everybody_shares_is_not_searched_for_ever(rng: np.random.Generator) -> None:
    """Whoever crafts signatures with one band in common must not make the index slow or blind."""
    index: SnippetIndex[int] = SnippetIndex(PLAIN, 0.85)
    common = random_signature(rng).values[:4]
    crafted = []
    for number in range(500):
        crafted.append(random_signature(rng))
        crafted[-1].values[:4] = common
        index.add(number, crafted[-1])

    table = BandTable()
    entered = [table.add(each.values, number) for number, each in enumerate(crafted[:80])]

    assert all(entered)
    assert len(table.candidates(crafted[0].values)) <= 80
    assert [index.find(each) for each in crafted] == [(number, 1.0) for number in range(500)]


def test_a_band_table_grows(rng: np.random.Generator) -> None:
    table = BandTable()
    size = table.size_bytes
    entered = 0
    while table.add(random_signature(rng).values, entered):
        entered += 1

    table.grow()

    assert entered > 100
    assert table.size_bytes == 2 * size
    assert len(table.candidates(random_signature(rng).values)) == 0


def test_band_keys_depend_on_the_view_and_the_band() -> None:
    keys = band_keys(np.zeros(2 * FUNCTIONS, np.uint32))

    assert len(set(keys.tolist())) == len(keys) == 24


def test_similarities_agree_with_jaccard(rng: np.random.Generator) -> None:
    founder = random_signature(rng, MENDED, 4 * FUNCTIONS)
    others = [near(founder, share, rng) for share in (0.3, 0.77, 1.0)]

    found = similarities(np.array([each.values for each in others]), founder.values)

    assert found.tolist() == [each.jaccard(founder) for each in others] == [0.3, 0.77, 1.0]
