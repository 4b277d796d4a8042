from __future__ import annotations

import numpy as np

from penrose_ray.actors.samples import WaitingSamples
from penrose_ray.capture.events import EventBatch


def rows(seqs: list[int], *, process: int = 1, device: int = 0) -> EventBatch:
    values = np.array(seqs, np.float64)[:, None] * 10
    return EventBatch.of(len(seqs), 1, seq=seqs, process=process, device=device, counters=values)


def test_samples_go_to_the_snippet_of_their_process_and_device() -> None:
    waiting = WaitingSamples(1)
    waiting.put(rows([3, 7]))
    waiting.put(rows([5], process=2))
    waiting.put(rows([6], device=1))

    assert waiting.take(1, 0, 0, 9)[:, 0].tolist() == [30.0, 70.0]
    assert waiting.take(2, 0, 0, 9)[:, 0].tolist() == [50.0]
    assert waiting.take(1, 1, 0, 9)[:, 0].tolist() == [60.0]
    assert waiting.take(1, 0, 0, 9).shape == (0, 1)


def test_later_samples_keep_waiting_and_orphans_are_counted() -> None:
    waiting = WaitingSamples(1)
    waiting.put(rows([1, 2]))
    waiting.put(rows([10, 20, 30]))

    assert waiting.take(1, 0, 10, 25)[:, 0].tolist() == [100.0, 200.0]
    assert waiting.without_snippet == 2
    assert waiting.take(1, 0, 26, 40)[:, 0].tolist() == [300.0]


def test_samples_of_a_process_that_ended_are_counted_and_those_of_others_stay() -> None:
    waiting = WaitingSamples(1)
    waiting.put(rows([1, 2]))
    waiting.put(rows([3], device=1))
    waiting.put(rows([4], process=2))

    waiting.end_process(1)

    assert waiting.without_snippet == 3
    assert waiting.take(1, 0, 0, 9).shape == (0, 1)
    assert waiting.take(2, 0, 0, 9)[:, 0].tolist() == [40.0]
