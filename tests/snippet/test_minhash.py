from __future__ import annotations

import hashlib
import inspect
from typing import TYPE_CHECKING

import datasketch
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.errors import ConfigError
from penrose_ray.snippet import Signature, signature, similarity
from penrose_ray.snippet.minhash import of_hashes, similarities
from penrose_ray.snippet.names import NameHashes
from penrose_ray.snippet.scheme import DEFAULT_SCHEME, FUNCTIONS, SCHEMES, Scheme, View, scheme
from penrose_ray.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

PLAIN = "g8-plain-v1"


def gram_set(ids: NDArray[np.int64], size: int = 8) -> set[tuple[int, ...]]:
    return {tuple(ids[start : start + size].tolist()) for start in range(len(ids) - size + 1)}


def exact(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
    one, two = gram_set(first), gram_set(second)
    return len(one & two) / len(one | two)


def table(count: int) -> list[str]:
    return [f"kernel{'abcdefghij'[number % 10]}{number}x" for number in range(count)]


def altered(ids: NDArray[np.int64], share: float, rng: np.random.Generator) -> NDArray[np.int64]:
    changed = ids.copy()
    where = rng.random(len(ids)) < share
    changed[where] = rng.integers(0, 500, where.sum())
    return changed


@pytest.mark.parametrize("share", [0.0, 0.005, 0.02, 0.05, 0.1])
def test_a_plain_signature_estimates_the_exact_similarity_as_well_as_datasketch(share: float) -> None:
    rng = np.random.default_rng(int(share * 1000) + 3)
    errors: dict[str, list[float]] = {"own": [], "datasketch": []}
    for _ in range(30):
        first = rng.integers(0, 500, 600)
        second = altered(first, share, rng)
        true = exact(first, second)
        signatures = [signature(ids, table(500), scheme_id=PLAIN) for ids in (first, second)]
        sketches = []
        for ids in (first, second):
            sketch = datasketch.MinHash(num_perm=FUNCTIONS)
            sketch.update_batch([repr(gram).encode() for gram in gram_set(ids)])
            sketches.append(sketch)
        errors["own"].append(signatures[0].jaccard(signatures[1]) - true)
        errors["datasketch"].append(sketches[0].jaccard(sketches[1]) - true)

    spread = {name: float(np.sqrt(np.mean(np.square(each)))) for name, each in errors.items()}
    assert spread["own"] <= 0.07  # the standard error is at most 0.05
    assert spread["own"] <= 1.6 * spread["datasketch"] + 0.005
    assert abs(float(np.mean(errors["own"]))) <= 0.03


@pytest.mark.parametrize("switch", ["0", "1"])
def test_values_are_frozen(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A published scheme never changes: other values would split every class of a running task."""
    monkeypatch.setenv("PENROSE_NATIVE", switch)
    ids = np.arange(400) % 37

    digests = {name: signature(ids, table(37), scheme_id=name).digest().hex()[:16] for name in SCHEMES}

    assert digests == {
        "g8-mended-v1": "119c4b409e9c9386",
        "g8-recurring-v1": "41b4049428217043",
        "g8-plain-v1": "a461e488a887165c",
    }


def test_the_default_scheme_is_the_task_s() -> None:
    assert inspect.signature(Task).parameters["signature_scheme"].default == DEFAULT_SCHEME


@pytest.mark.parametrize("scheme_id", list(SCHEMES))
def test_the_same_launches_give_the_same_signature_whatever_their_ids(
    program: Callable[..., NDArray[np.int64]], names: list[str], scheme_id: str
) -> None:
    ids = program(1, 3000)
    shuffled = np.random.default_rng(4).permutation(len(names))
    renumbered = [names[place] for place in np.argsort(shuffled)]

    first = signature(ids, names, scheme_id=scheme_id)
    second = signature(shuffled[ids], renumbered, scheme_id=scheme_id)

    assert first.to_bytes() == second.to_bytes()
    assert first.jaccard(second) == 1.0


@pytest.mark.parametrize("scheme_id", list(SCHEMES))
def test_a_phase_does_not_matter_past_one_iteration(
    program: Callable[..., NDArray[np.int64]], names: list[str], scheme_id: str
) -> None:
    first = signature(program(1, 2000), names, scheme_id=scheme_id)

    for phase in (1, 50, 111):
        assert first.jaccard(signature(program(1, 2000, phase=phase), names, scheme_id=scheme_id)) > 0.95


@pytest.mark.parametrize("scheme_id", list(SCHEMES))
def test_different_programs_do_not_resemble_each_other(
    program: Callable[..., NDArray[np.int64]], names: list[str], scheme_id: str
) -> None:
    signatures = [signature(program(seed, 2000), names, scheme_id=scheme_id) for seed in range(8)]

    for place, first in enumerate(signatures):
        for second in signatures[:place]:
            assert first.jaccard(second) < 0.6


def test_scattered_loss_destroys_a_plain_signature_and_not_a_mended_one(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    ids = program(3, 10_000)
    kept = ids[np.random.default_rng(9).random(len(ids)) >= 0.005]

    plain = [signature(each, names, scheme_id=PLAIN) for each in (ids, kept)]
    mended = [signature(each, names) for each in (ids, kept)]

    assert plain[0].jaccard(plain[1]) < 0.5
    assert mended[0].jaccard(mended[1]) > 0.95


def test_one_renamed_kernel_leaves_the_shape(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    ids = program(3, 5000)
    renamed = [f"{name}_v2" if place == ids[30] else name for place, name in enumerate(names)]

    assert signature(ids, names, scheme_id=PLAIN).jaccard(signature(ids, renamed, scheme_id=PLAIN)) < 0.85
    assert signature(ids, names).jaccard(signature(ids, renamed)) > 0.9


def test_a_shape_alone_makes_no_match(program: Callable[..., NDArray[np.int64]], names: list[str]) -> None:
    ids = program(3, 5000)
    others = [f"other_{name}" for name in names]

    assert signature(ids, names).jaccard(signature(ids, others)) == 0.7


def test_interleaved_streams_are_told_apart(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    compute, copies = program(5, 2000), program(6, 400)
    rng = np.random.default_rng(2)

    def interleaved() -> Signature:
        streams = np.zeros(2400, np.int64)
        streams[rng.choice(2400, 400, replace=False)] = 7
        ids = np.empty(2400, np.int64)
        ids[streams == 0], ids[streams == 7] = compute, copies
        return signature(ids, names, streams, scheme_id=PLAIN)

    assert interleaved().to_bytes() == interleaved().to_bytes()


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.lists(st.integers(0, 2), min_size=40, max_size=40),
)
def test_any_run_of_launches_has_a_signature(ids: list[int], streams: list[int]) -> None:
    for scheme_id in SCHEMES:
        made = signature(ids, ["a", "b", "c", "d"], streams[: len(ids)], scheme_id=scheme_id)

        assert made.jaccard(made) == 1.0
        assert Signature.from_bytes(scheme_id, made.to_bytes()).digest() == made.digest()


def test_bytes_are_little_endian_words_and_the_digest_names_the_scheme() -> None:
    made = signature([0, 1, 2, 3] * 10, ["a", "b", "c", "d"])

    raw = made.to_bytes()

    assert len(raw) == 4 * scheme(DEFAULT_SCHEME).size == 1600
    assert raw[:4] == int(made.values[0]).to_bytes(4, "little")
    assert made.digest() == hashlib.sha256(DEFAULT_SCHEME.encode() + b"\x00" + raw).digest()


@pytest.mark.parametrize("raw", [b"", bytes(399), bytes(1599), bytes(1601)])
def test_bytes_of_another_length_are_refused(raw: bytes) -> None:
    for scheme_id in SCHEMES:
        with pytest.raises(ConfigError, match="bytes, not"):
            Signature.from_bytes(scheme_id, raw)


def test_signatures_of_two_schemes_are_never_compared() -> None:
    first = signature([0] * 20, ["a"])
    second = signature([0] * 20, ["a"], scheme_id=PLAIN)

    with pytest.raises(ConfigError, match="cannot be compared"):
        first.jaccard(second)


@pytest.mark.parametrize(
    ("ids", "names", "streams", "reason"),
    [
        ([], ["a"], None, "empty run"),
        ([0, 1], ["a"], None, "the table has 1 names"),
        ([-1], ["a"], None, "run from -1"),
        ([0.5], ["a"], None, "no row of integers"),
        ([[0]], ["a"], None, "no row of integers"),
        ([0, 0], ["a"], [1], "streams"),
    ],
)
def test_what_is_no_run_of_launches_is_refused(
    ids: list[int], names: list[str], streams: list[int] | None, reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        signature(ids, names, streams)


def test_an_unknown_scheme_is_named_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'g9'.*g8-mended-v1"):
        signature([0], ["a"], scheme_id="g9")


def test_similarity_takes_names() -> None:
    loop = ["gemm", "relu", "softmax", "copy"] * 20

    assert similarity(loop, loop[1:]) > 0.9
    assert similarity(loop, ["fft", "scale"] * 40) < 0.1


def test_the_most_similar_view_decides_and_views_of_all_grams_count_together() -> None:
    def found(*shares: int, whole: tuple[int, ...] = ()) -> float:
        values = np.zeros((len(shares), FUNCTIONS), np.uint32)
        for view in whole:
            values[view] |= 1
        other = values.copy()
        for view, share in enumerate(shares):
            other[view, share:] += 2
        return round(float(similarities(other.reshape(1, -1), values.reshape(-1))[0]), 9)

    assert found(30, 90, 10) == 0.9
    assert found(80, 90, 10, whole=(0, 1)) == 0.85
    assert found(80, 90, 86, whole=(0, 1)) == 0.86
    assert found(70, whole=(0,)) == 0.7


def test_a_filtered_view_never_equals_one_of_all_grams(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    short, long = (signature(program(1, count), names).values.reshape(-1, FUNCTIONS) for count in (180, 9000))

    assert (short[1:3] & 1).all()
    assert not (short[[0, 3]] & 1).any()
    assert not (long & 1).any()
    assert not (short[1:3] == long[1:3]).any()


def test_the_first_view_is_the_plain_one_whatever_was_mended(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    """So a mended signature recognises whatever a plain one recognises."""
    ids = program(3, 5000)
    kept = ids[np.random.default_rng(9).random(len(ids)) >= 0.01]

    for each in (ids, kept):
        own = signature(each, names).values[:FUNCTIONS]
        assert own.tolist() == signature(each, names, scheme_id=PLAIN).values.tolist()


def test_a_view_that_would_keep_too_little_keeps_everything() -> None:
    rare = Scheme("s", gram=2, views=(View(floor=50),), least_grams=5, mended=False, seed=b"x")
    everything = Scheme("t", gram=2, views=(View(),), least_grams=5, mended=False, seed=b"x")
    hashes = NameHashes().of(["a", "b", "c", "d", "e", "f"])[np.r_[np.tile([0, 1], 100), 2, 3, 4, 5]]

    assert (
        of_hashes(hashes, None, rare).values.tolist() == of_hashes(hashes, None, everything).values.tolist()
    )


def test_a_key_changes_the_signature_and_keeps_similarities(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    first, second = program(1, 3000), np.concatenate([program(1, 2000), program(2, 1000)])
    plain = [signature(ids, names) for ids in (first, second)]
    keyed = [signature(ids, names, key=b"k" * 32) for ids in (first, second)]

    assert not (plain[0].values == keyed[0].values).any()
    assert keyed[0].jaccard(keyed[1]) == pytest.approx(plain[0].jaccard(plain[1]), abs=0.15)
