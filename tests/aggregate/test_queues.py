from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.aggregate.queues import Queue, Run, merged_queues, preempted

STUCK = Run("stuck", 1, 3600, 0.3)
MORE_STUCK = Run("more stuck", 1, 7200, 0.39)
NEARLY_DONE = Run("nearly done", 2, 9000, 0.95)
YOUNG = Run("young", 1, 60, 0.0)


def test_the_longest_with_the_least_progress_gives_way_first() -> None:
    runs = [YOUNG, NEARLY_DONE, STUCK, MORE_STUCK]
    assert preempted(runs, 1) == [MORE_STUCK]
    assert preempted(runs, 2) == [MORE_STUCK, STUCK]
    assert preempted(runs, 3) == [MORE_STUCK, STUCK, NEARLY_DONE]
    assert preempted(runs, 99) == [MORE_STUCK, STUCK, NEARLY_DONE, YOUNG]
    assert preempted(runs, 0) == []


@given(
    st.lists(st.builds(Run, st.text(max_size=3), st.integers(1, 8), st.floats(0, 1e5), st.floats(0, 1))),
    st.integers(0, 40),
)
def test_no_more_is_stopped_than_needed(runs: list[Run], cores: int) -> None:
    stopped = preempted(runs, cores)
    freed = sum(run.cores for run in stopped)
    assert freed >= min(cores, sum(run.cores for run in runs))
    assert not stopped or freed - stopped[-1].cores < cores


def test_idle_queues_join_the_busiest_one() -> None:
    queues = [Queue("a", 0.1, 500), Queue("b", 0.6, 500), Queue("c", 0.1, 119), Queue("d", 0.0, 120)]
    assert merged_queues(queues) == [("a", "b"), ("d", "b")]


def test_one_queue_always_stays() -> None:
    assert merged_queues([Queue("a", 0.0, 1e6), Queue("b", 0.0, 1e6)]) == [("a", "b")]
    assert merged_queues([Queue("a", 0.0, 1e6)]) == []
    assert merged_queues([]) == []
