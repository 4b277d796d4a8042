from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.actors.local_classes import LocalClass
from penrose_ray.actors.open_histograms import Due, OpenHistograms

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.task import Task

A, B = LocalClass("GPU", 0), LocalClass("GPU", 1)
DAY_S = 86_400.0


def total(due: list[Due]) -> int:
    return sum(int(each.contribution.counts.sum()) for each in due)


def test_without_a_bound_a_histogram_is_due_as_soon_as_it_is_full(make_task: Callable[..., Task]) -> None:
    task = make_task(samples_per_histogram=100, reports_per_class=0, min_samples=10)
    histograms = OpenHistograms(task, np.random.default_rng(1))

    assert histograms.add(A, 0, np.full(99, 5), now_s=0.0) == []
    due = histograms.add(A, 0, np.full(121, 7), now_s=0.0)

    assert [int(each.contribution.counts.sum()) for each in due] == [100, 100]
    assert due[0].contribution.counts[[5, 7]].tolist() == [99, 1]
    assert [int(each.contribution.counts[7]) for each in histograms.finish()] == [20]


def test_classes_and_counter_sets_do_not_mix(make_task: Callable[..., Task]) -> None:
    task = make_task(samples_per_histogram=100, reports_per_class=0, min_samples=1)
    histograms = OpenHistograms(task, np.random.default_rng(1))
    histograms.add(A, 0, np.full(3, 1), now_s=0.0)
    histograms.add(A, 1, np.full(4, 2), now_s=0.0)
    histograms.add(B, 0, np.full(5, 3), now_s=0.0)

    due = {(each.local_class, each.contribution.counter_set): each for each in histograms.finish()}

    assert {key: int(each.contribution.counts.sum()) for key, each in due.items()} == {
        (A, 0): 3,
        (A, 1): 4,
        (B, 0): 5,
    }


@pytest.mark.parametrize("allowed", [1, 3])
def test_at_a_batchs_end_at_most_r_histograms_of_a_class_and_set_are_due(
    make_task: Callable[..., Task], allowed: int
) -> None:
    task = make_task(samples_per_histogram=50, reports_per_class=allowed, min_samples=10, batch_s=86_400)
    histograms = OpenHistograms(task, np.random.default_rng(1))
    for _ in range(40):
        assert histograms.add(A, 0, np.arange(25), now_s=10.0) == []

    due = histograms.add(A, 0, np.arange(25), now_s=DAY_S + 1)

    assert len(due) == allowed
    assert all(int(each.contribution.counts.sum()) == 50 for each in due)
    assert {each.batch for each in due} == {0}


def test_the_reservoir_is_unbiased(make_task: Callable[..., Task]) -> None:
    """Early, middle and late samples have the same chance to be sent: |z| < 4 for each third."""
    task = make_task(samples_per_histogram=60, reports_per_class=1, min_samples=10)
    kept = np.zeros(3)
    rounds, offered = 400, 600
    for seed in range(rounds):
        histograms = OpenHistograms(task, np.random.default_rng(seed))
        for start in range(0, offered, 40):
            third = np.arange(start, start + 40) // (offered // 3)
            histograms.add(A, 0, third, now_s=0.0)
        (due,) = histograms.finish()
        kept += due.contribution.counts[:3]
    expected = rounds * 60 / 3
    deviation = np.sqrt(rounds * 60 * (1 / 3) * (2 / 3))
    assert (np.abs(kept - expected) / deviation < 4).all(), kept


def test_a_short_histogram_is_carried_over_once_then_dropped_and_counted(
    make_task: Callable[..., Task],
) -> None:
    task = make_task(samples_per_histogram=100, reports_per_class=0, min_samples=10)
    histograms = OpenHistograms(task, np.random.default_rng(1))
    histograms.add(A, 0, np.full(6, 1), now_s=0.0)

    assert histograms.roll(DAY_S) == []
    histograms.add(A, 0, np.full(6, 2), now_s=DAY_S)
    (due,) = histograms.roll(2 * DAY_S)
    assert (total([due]), due.batch) == (12, 1)

    histograms.add(B, 0, np.full(6, 1), now_s=2 * DAY_S)
    assert histograms.roll(3 * DAY_S) == []
    assert histograms.roll(4 * DAY_S) == []
    assert histograms.dropped_samples == 6
    assert histograms.finish() == []


def test_the_least_recently_used_class_makes_room(make_task: Callable[..., Task]) -> None:
    task = make_task(samples_per_histogram=100, reports_per_class=0, min_samples=10)
    histograms = OpenHistograms(task, np.random.default_rng(1), most_classes=2)
    histograms.add(A, 0, np.full(20, 1), now_s=0.0)
    histograms.add(B, 0, np.full(20, 1), now_s=0.0)
    histograms.add(A, 0, np.full(1, 1), now_s=0.0)

    due = histograms.add(LocalClass("GPU", 2), 0, np.full(5, 1), now_s=0.0)

    assert [(each.local_class, total([each])) for each in due] == [(B, 20)]


def test_every_sample_is_sent_or_counted_as_dropped(make_task: Callable[..., Task]) -> None:
    rng = np.random.default_rng(7)
    task = make_task(samples_per_histogram=30, reports_per_class=0, min_samples=8)
    histograms = OpenHistograms(task, rng, most_classes=3)
    offered = 0
    due: list[Due] = []
    for step in range(300):
        count = int(rng.integers(1, 20))
        offered += count
        place = LocalClass("GPU", int(rng.integers(6)))
        due += histograms.add(place, int(rng.integers(2)), rng.integers(0, 128, count), now_s=step * 7000.0)
    due += histograms.finish()

    assert total(due) + histograms.dropped_samples == offered
    assert all(8 <= total([each]) <= 30 for each in due)
