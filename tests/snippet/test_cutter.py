from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.snippet import classify, signature
from penrose_ray.snippet.cutter import SnippetCutter
from penrose_ray.snippet.scheme import DEFAULT_SCHEME, scheme

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LENGTH = 100


@dataclass
class Batch:
    """Launches as columns; columns that are not given hold 0."""

    name_id: NDArray[np.uint32]
    seq: NDArray[np.uint64]
    process: NDArray[np.uint32]
    device: NDArray[np.uint16]
    stream: NDArray[np.uint32]
    gap: NDArray[np.bool_]


def batch(ids: NDArray[np.int64], first: int = 0, **columns: object) -> Batch:
    count = len(ids)

    def column(name: str, dtype: type[np.generic]) -> NDArray[np.generic]:
        return np.broadcast_to(np.asarray(columns.get(name, 0), dtype), (count,)).copy()

    return Batch(
        ids.astype(np.uint32),
        np.arange(first, first + count, dtype=np.uint64),
        column("process", np.uint32),
        column("device", np.uint16),
        column("stream", np.uint32),
        column("gap", np.bool_),
    )


@pytest.fixture
def cutter() -> SnippetCutter:
    return SnippetCutter(LENGTH, scheme(DEFAULT_SCHEME))


def test_a_stream_is_cut_every_so_many_launches(
    cutter: SnippetCutter, program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    ids = program(1, 250)

    full, rest = cutter.push(batch(ids), names), cutter.finish()

    assert [(each.first_seq, each.last_seq, each.launches) for each in full] == [
        (0, 99, 100),
        (100, 199, 100),
    ]
    assert [(each.first_seq, each.last_seq, each.launches) for each in rest] == [(200, 249, 50)]
    assert full[1].signature.to_bytes() == signature(ids[100:200], names).to_bytes()
    assert rest[0].signature.to_bytes() == signature(ids[200:], names).to_bytes()


@pytest.mark.parametrize("size", [1, 7, 99, 100, 101])
def test_it_does_not_matter_how_launches_arrive(
    cutter: SnippetCutter, program: Callable[..., NDArray[np.int64]], names: list[str], size: int
) -> None:
    ids = program(1, 350)
    pieces = [
        each
        for start in range(0, 350, size)
        for each in cutter.push(batch(ids[start : start + size], first=start), names)
    ]

    at_once = SnippetCutter(LENGTH, scheme(DEFAULT_SCHEME)).push(batch(ids), names)

    assert [each.signature.digest() for each in pieces] == [each.signature.digest() for each in at_once]
    assert len(at_once) == 3


def test_processes_and_devices_are_cut_apart_and_returned_in_the_order_of_their_ends(
    cutter: SnippetCutter, program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    place = np.random.default_rng(1).integers(0, 3, 600)
    ids = np.empty(600, np.int64)
    for each in range(3):
        ids[place == each] = program(each, int((place == each).sum()))
    found = cutter.push(
        batch(ids, process=np.array([5, 5, 9])[place], device=np.array([0, 1, 0])[place]), names
    )

    assert len(found) == 3 + sum(int((place == each).sum()) >= 200 for each in range(3))
    assert [each.last_seq for each in found] == sorted(each.last_seq for each in found)
    for each in found[:3]:
        number = [(5, 0), (5, 1), (9, 0)].index((each.process, each.device))
        assert each.signature.to_bytes() == signature(program(number, 100), names).to_bytes()


def test_a_gap_ends_the_snippet(
    cutter: SnippetCutter, program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    gap = np.zeros(180, np.bool_)
    gap[60] = True

    found = [*cutter.push(batch(program(1, 180), gap=gap), names), *cutter.finish()]

    assert [(each.first_seq, each.last_seq) for each in found] == [(0, 59), (60, 159), (160, 179)]


def test_a_gap_of_one_process_leaves_the_others_alone(
    cutter: SnippetCutter, program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    process = np.tile([1, 2], 60)
    gap = np.zeros(120, np.bool_)
    gap[40] = True

    found = [*cutter.push(batch(program(1, 120), process=process, gap=gap), names), *cutter.finish()]

    assert sorted((each.process, each.launches) for each in found) == [(1, 20), (1, 40), (2, 60)]


def test_a_gap_of_a_process_ends_its_snippets_on_all_devices(
    cutter: SnippetCutter, program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    gap = np.zeros(120, np.bool_)
    gap[40] = True
    cutter.push(batch(program(2, 50), device=2), names)

    pushed = cutter.push(batch(program(1, 120), first=50, device=np.tile([0, 1], 60), gap=gap), names)

    assert sorted((each.device, each.launches) for each in pushed) == [(0, 20), (1, 20), (2, 50)]
    assert sorted((each.device, each.launches) for each in cutter.finish()) == [(0, 40), (1, 40)]


def test_runs_shorter_than_a_gram_have_no_identity_and_are_counted(
    cutter: SnippetCutter, names: list[str]
) -> None:
    cutter.push(batch(np.arange(7)), names)

    assert cutter.finish() == []
    assert cutter.too_short == 7
    assert cutter.finish() == []


def test_a_process_that_ends_has_its_snippets_ended_on_all_devices_and_no_other(
    cutter: SnippetCutter, program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    ids = program(1, 120)
    cutter.push(batch(ids, process=np.tile([4, 5, 4], 40), device=np.tile([0, 0, 1], 40)), names)

    ended = cutter.end_process(4)

    assert sorted((each.process, each.device, each.launches) for each in ended) == [(4, 0, 40), (4, 1, 40)]
    assert cutter.end_process(4) == []
    assert [(each.process, each.launches) for each in cutter.finish()] == [(5, 40)]


def test_an_empty_batch_ends_nothing(cutter: SnippetCutter, names: list[str]) -> None:
    cutter.push(batch(np.arange(50)), names)

    assert cutter.push(batch(np.empty(0, np.int64)), names) == []
    assert len(cutter.finish()) == 1


def test_a_name_table_may_grow(cutter: SnippetCutter) -> None:
    cutter.push(batch(np.zeros(50, np.int64)), ["a"])

    (found,) = cutter.push(batch(np.ones(50, np.int64), first=50), ["a", "b"])

    assert found.signature.to_bytes() == signature([0] * 50 + [1] * 50, ["a", "b"]).to_bytes()


def test_classify_numbers_classes_in_the_order_in_which_they_appear(
    program: Callable[..., NDArray[np.int64]], names: list[str]
) -> None:
    first = batch(np.concatenate((program(1, 1500), program(2, 1000))))
    second = batch(np.concatenate((program(2, 500), program(3, 500))))

    found = classify([(first, names), (second, names)], 500)

    assert [(each.stream, each.index, each.class_) for each in found.windows] == [
        (0, 0, 0), (0, 1, 0), (0, 2, 0), (0, 3, 1), (0, 4, 1), (1, 0, 1), (1, 1, 2),
    ]  # fmt: skip
    assert found.classes == 3
    assert found.windows[0].jaccard == 1.0
    assert all(each.jaccard > 0.85 for each in found.windows)


def test_classify_refuses_snippets_shorter_than_a_gram(names: list[str]) -> None:
    with pytest.raises(ConfigError, match="of 7 launches is shorter than a gram of 8"):
        classify([(batch(np.arange(7)), names)], 7)


def test_classify_without_launches_finds_nothing(names: list[str]) -> None:
    assert classify([(batch(np.empty(0, np.int64)), names)], 100).windows == ()
