from __future__ import annotations

import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.capture.events import EventBatch, KernelKind
from penrose_ray.capture.guard import BusyThinner
from penrose_ray.capture.processor import EventProcessor, launch_sorted, repeated


def _batch(correlation: list[int], **columns: object) -> EventBatch:
    given_ = {"start_ns": np.array(correlation) * 10, "end_ns": np.array(correlation) * 10 + 5, **columns}
    return EventBatch.of(len(correlation), 1, correlation=correlation, seq=range(len(correlation)), **given_)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(1, 6)), max_size=60))
def test_order_is_process_then_correlation_then_start(rows: list[tuple[int, int, int]]) -> None:
    process, correlation, start = (
        (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
    )
    batch = EventBatch.of(len(rows), 0, process=process, correlation=correlation, start_ns=start)
    ordered = launch_sorted(batch)
    keys = list(
        zip(ordered.process.tolist(), ordered.correlation.tolist(), ordered.start_ns.tolist(), strict=True)
    )
    assert keys == sorted(rows)


def test_sorted_batch_is_not_copied() -> None:
    batch = _batch([1, 2, 3])
    assert launch_sorted(batch) is batch


def test_launches_without_times_keep_their_order_within_a_correlation() -> None:
    """A ring times one launch of a graph in S: it must not move behind the others."""
    batch = _batch([9, 4, 4, 4], start_ns=[0, 0, 70, 0], end_ns=[0, 0, 75, 0], graph_node=[0, 1, 2, 3])
    ordered = launch_sorted(batch)
    assert ordered.correlation.tolist() == [4, 4, 4, 9]
    assert ordered.graph_node.tolist() == [1, 2, 3, 0]


def test_node_of_a_graph_that_runs_again_is_no_duplicate_without_times() -> None:
    batch = _batch([4, 4, 5, 5], start_ns=0, end_ns=0, graph_node=[3, 3, 0, 0])
    assert repeated(batch).tolist() == [False, False, False, True]


def test_record_whose_times_were_not_asked_for_repeats_one_that_has_them() -> None:
    batch = _batch([4, 4], start_ns=[10, 0], end_ns=[15, 0])
    assert repeated(batch).tolist() == [False, True]


def test_graph_replay_with_one_correlation_is_no_duplicate() -> None:
    batch = _batch([7, 7, 7], start_ns=[10, 20, 20], end_ns=[15, 25, 25])
    assert repeated(batch).tolist() == [False, False, True]


def test_records_without_correlation_are_never_duplicates() -> None:
    assert not repeated(_batch([0, 0], start_ns=0, end_ns=0)).any()


def test_duplicates_are_given_out_once_across_takes() -> None:
    processor = EventProcessor()
    processor.feed(_batch([1, 2, 2, 3]))
    first = processor.take()
    processor.feed(_batch([3, 4]))
    second = processor.take()
    assert first is not None
    assert second is not None
    assert first.correlation.tolist() == [1, 2, 3]
    assert second.correlation.tolist() == [4]
    assert processor.digested.duplicates == 2


def test_held_back_launches_let_stragglers_find_their_place() -> None:
    processor = EventProcessor(hold=2)
    processor.feed(_batch([1, 2, 5, 6]))
    first = processor.take()
    processor.feed(_batch([3, 4]))
    rest = processor.take(last=True)
    assert first is not None
    assert rest is not None
    assert first.correlation.tolist() == [1, 2]
    assert rest.correlation.tolist() == [3, 4, 5, 6]
    assert not rest.gap.any()


def test_straggler_that_comes_too_late_is_counted_and_leaves_a_gap() -> None:
    processor = EventProcessor()
    processor.feed(_batch([1, 5]))
    processor.take()
    processor.feed(_batch([3, 6]))
    batch = processor.take()
    assert batch is not None
    assert batch.correlation.tolist() == [6]
    assert batch.gap.tolist() == [True]
    assert processor.digested.late == 1


def test_gap_before_rows_that_are_left_out_marks_the_next_one_given_out() -> None:
    processor = EventProcessor()
    processor.feed(_batch([1, 2], kind=[KernelKind.KERNEL, KernelKind.COPY], gap=[False, True]))
    first = processor.take()
    processor.feed(_batch([3], kind=[KernelKind.COPY]))
    assert processor.take() is None
    processor.feed(_batch([4, 5]))
    second = processor.take()
    assert first is not None
    assert second is not None
    assert not first.gap.any()
    assert second.gap.tolist() == [True, False]


def test_other_kinds_are_left_out() -> None:
    processor = EventProcessor()
    processor.feed(
        _batch([1, 2, 3], kind=[KernelKind.COPY, KernelKind.KERNEL, KernelKind.SET], gap=[True, False, False])
    )
    batch = processor.take()
    assert batch is not None
    assert batch.correlation.tolist() == [2]
    assert batch.gap.tolist() == [True]
    assert processor.digested.other_kinds == 2


def test_busy_gpu_thins_copies_and_no_kernel() -> None:
    thinner = BusyThinner(np.random.default_rng(0))
    processor = EventProcessor(
        kinds=(KernelKind.KERNEL, KernelKind.COPY), thinner=thinner, utilisation=lambda: 0.9
    )
    kinds = [KernelKind.KERNEL, KernelKind.COPY] * 2000
    processor.feed(_batch(list(range(1, 4001)), kind=kinds))
    batch = processor.take()
    assert batch is not None
    copies = batch.kind == KernelKind.COPY
    assert (~copies).sum() == 2000
    assert processor.digested.thinned == 2000 - copies.sum()
    np.testing.assert_allclose(batch.weight[copies], 1 / 0.55)
    assert abs(batch.weight[copies].sum() - 2000) < 4 * np.sqrt(2000 * 0.45 / 0.55)
    assert not batch.gap.any()


def test_full_buffer_drops_counts_and_marks() -> None:
    processor = EventProcessor(capacity=5)
    processor.feed(_batch([1, 2, 3]))
    processor.feed(_batch([4, 5, 6]))
    processor.feed(_batch([7]))
    batch = processor.take()
    assert batch is not None
    assert batch.correlation.tolist() == [1, 2, 3, 7]
    assert batch.gap.tolist() == [False, False, False, True]
    assert processor.digested.dropped == 3


def test_nothing_fed_is_nothing_taken() -> None:
    assert EventProcessor().take() is None


def test_filling_and_digesting_in_two_threads_loses_nothing() -> None:
    processor = EventProcessor()
    total = 40_000

    def fill() -> None:
        for first in range(1, total + 1, 100):
            processor.feed(_batch(list(range(first, first + 100))))

    filler = threading.Thread(target=fill)
    filler.start()
    taken: list[int] = []
    is_filling = True
    while is_filling:
        is_filling = filler.is_alive()  # before the take that is the last one then
        batch = processor.take()
        taken += batch.correlation.tolist() if batch is not None else []
    assert taken == list(range(1, total + 1))
