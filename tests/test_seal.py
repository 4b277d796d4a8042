from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray import wire
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.packing import unpack
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import BINS
from penrose_ray.seal import Contribution, Sealer, cover, slots_of
from penrose_ray.snippet import signature

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

SIGNATURE = signature([0, 1, 2] * 20, ["gemm", "relu", "softmax"])
NOW_S = 1_750_000_000.0


class Transparent:
    """Shows what would be encrypted; a real encryptor takes its place below."""

    def encrypt(self, plaintexts: Sequence[int]) -> bytes:
        return b"".join(value.to_bytes(768, "little") for value in plaintexts)


def counts_of(*values: int) -> np.ndarray:
    counts = np.zeros(BINS, np.int64)
    counts[: len(values)] = values
    return counts


def test_bins_and_unfilled_come_to_the_samples_of_a_histogram() -> None:
    slots = slots_of(Contribution(0, counts_of(10, 20), real=True), 100)

    assert (slots.unfilled, slots.real_reports) == (70, 1)
    assert slots.bins[:3].tolist() == [10, 20, 0]


def test_a_cover_report_adds_nothing() -> None:
    slots = slots_of(cover(1), 100)

    assert (slots.unfilled, slots.real_reports, int(slots.bins.sum())) == (100, 0, 0)


@pytest.mark.parametrize(
    "contribution",
    [
        Contribution(0, counts_of(101), real=True),
        Contribution(0, counts_of(50, -1), real=True),
        Contribution(0, counts_of(2**62, 2**62, 2**62, 2**62), real=True),
    ],
)
def test_a_histogram_that_does_not_fit_is_refused(contribution: Contribution) -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        slots_of(contribution, 100)


def test_samples_cannot_hide_in_a_cover_report() -> None:
    with pytest.raises(ConfigError, match="cover report of 5 samples"):
        slots_of(Contribution(0, counts_of(5), real=False), 100)


def test_a_report_carries_the_class_and_no_finer_time_than_the_hour(make_task: Callable[..., Task]) -> None:
    task = make_task()
    sealer = Sealer(task, "A100", Transparent(), new_id=lambda size: b"i" * size)

    report = sealer.seal(Contribution(1, counts_of(30), real=True), SIGNATURE, now_s=NOW_S)

    assert report.task_id == task.task_id
    assert report.report_id == b"i" * 32
    assert report.created_hour == int(NOW_S) // 3600
    assert (report.gpu_model, report.counter_set) == ("A100", 1)
    assert (report.scheme, report.signature) == (SIGNATURE.scheme, SIGNATURE.to_bytes())
    plaintexts = [int.from_bytes(report.blob[start : start + 768], "little") for start in (0, 768)]
    slots = unpack(plaintexts, task.profile())
    assert (slots.bins[0], slots.unfilled, slots.real_reports) == (30, 70, 1)


def test_ids_differ_without_a_hand_from_outside(make_task: Callable[..., Task]) -> None:
    sealer = Sealer(make_task(), "A100", Transparent())

    ids = {sealer.seal(cover(0), SIGNATURE, now_s=NOW_S).report_id for _ in range(20)}

    assert len(ids) == 20
    assert {len(each) for each in ids} == {32}


def test_a_sealed_report_fits_a_record_and_only_the_key_opens_it(
    make_task: Callable[..., Task], design_keys: DesignKeys
) -> None:
    task = make_task()
    sealer = Sealer(task, "A100", Encryptor(task.key(), task.profile()))
    histogram = Contribution(0, counts_of(1, 2, 3), real=True)

    first, second = (sealer.seal(histogram, SIGNATURE, now_s=NOW_S) for _ in range(2))

    assert wire.decode(wire.encode(first)) == first
    assert first.blob != second.blob
    (plaintext,) = design_keys.paillier.decrypt_many([first.blob], task.profile())
    assert unpack(plaintext, task.profile()).bins[:4].tolist() == [1, 2, 3, 0]
