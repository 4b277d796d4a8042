from __future__ import annotations

import numpy as np

from penrose_ray.capture.events import EventBatch
from penrose_ray.capture.launch_order import LaunchOrder
from penrose_ray.capture.queued import LaunchQueue
from penrose_ray.capture.tally import Tally


def _made(*, hold: int = 0, capacity: int = 1000) -> tuple[LaunchOrder, LaunchQueue, Tally]:
    tally = Tally()
    queue = LaunchQueue(0, capacity, tally)
    return LaunchOrder(queue, tally, hold=hold), queue, tally


def _records(*correlations: int) -> EventBatch:
    return EventBatch.of(len(correlations), 0, correlation=correlations)


def test_records_of_several_buffers_come_out_in_launch_order_and_once() -> None:
    order, queue, tally = _made(hold=3)
    for part in ((2, 1, 4), (3, 4, 7), (5, 6)):
        order.feed(_records(*part))
        order.hand_on()
    order.hand_on(last=True)
    assert queue.take(100).correlation.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert (tally.seen, tally.dropped, tally.duplicates, tally.gaps) == (7, 0, 1, 0)


def test_straggler_behind_its_place_is_dropped_counted_and_leaves_a_gap() -> None:
    order, queue, tally = _made()
    for part in ((1, 5), (3,), (6, 7)):
        order.feed(_records(*part))
        order.hand_on()
    batch = queue.take(100)
    assert batch.correlation.tolist() == [1, 5]
    batch = queue.take(100)
    assert batch.correlation.tolist() == [6, 7]
    assert batch.gap.tolist() == [True, False]
    assert (tally.seen, tally.dropped, tally.gaps) == (5, 1, 1)


def test_lost_records_lie_behind_all_that_came_before() -> None:
    order, queue, tally = _made(hold=10)
    order.feed(_records(2, 1))
    order.lose(40)
    order.feed(_records(50, 51))
    order.hand_on(last=True)
    assert queue.take(100).seq.tolist() == [0, 1]
    batch = queue.take(100)
    assert batch.seq.tolist() == [42, 43]
    assert batch.gap.tolist() == [True, False]
    assert (tally.seen, tally.dropped) == (44, 40)


def test_correlation_ids_that_start_anew_go_on_counting() -> None:
    order, queue, tally = _made(hold=4)
    last = (1 << 32) - 1
    order.feed(_records(last - 2, last, 2, last - 1))
    order.feed(_records(1, 4, 3, 0))
    order.hand_on(last=True)
    ids = queue.take(100).correlation.astype(np.int64)
    assert ids.tolist() == [0, last - 2, last - 1, last, last + 2, last + 3, last + 4, last + 5]
    assert (tally.seen, tally.dropped) == (8, 0)


def test_records_that_nobody_takes_over_cost_launches_and_not_memory() -> None:
    order, queue, tally = _made(capacity=6)
    for first in range(1, 13, 3):
        order.feed(_records(first, first + 1, first + 2))
    order.hand_on()
    order.feed(_records(13))
    assert queue.take(100).correlation.tolist() == [1, 2, 3, 4, 5, 6]
    order.hand_on()
    batch = queue.take(100)
    assert batch.correlation.tolist() == [13]
    assert batch.gap.tolist() == [True]
    assert (tally.seen, tally.delivered, tally.dropped, tally.gaps) == (13, 7, 6, 1)
