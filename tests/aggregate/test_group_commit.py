from __future__ import annotations

import contextlib
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from waiting import until

from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.service import ShardService
from penrose_ray.errors import JournalFullError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.aggregate.arrival import Row
    from penrose_ray.clock import ManualClock
    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports


def test_callers_that_wait_are_committed_together(
    tmp_path: Path, task: Task, clock: ManualClock, reports: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ShardService(tmp_path / "shard", task, clock, validate_states=True) as shard:
        journal = shard._core.journal
        commits: list[int] = []
        started, go_on = threading.Event(), threading.Event()
        record = journal.record

        def slow_first(rows: list[Row]) -> None:
            commits.append(len(rows))
            if len(commits) == 1:
                started.set()
                assert go_on.wait(timeout=300)
            record(rows)

        monkeypatch.setattr(journal, "record", slow_first)
        outcomes: dict[int, list[Outcome]] = {}

        def call(number: int) -> None:
            # every second caller brings a report that another one brings too
            arrivals = [reports.one(number), reports.one(number - number % 2)]
            outcomes[number] = [answer.outcome for answer in shard.accept(arrivals)]

        threads = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(10)]
        threads[0].start()
        assert started.wait(timeout=300)
        for thread in threads[1:]:
            thread.start()
        until(lambda: len(shard._inbox) == 9)
        go_on.set()
        for thread in threads:
            thread.join(timeout=300)
        assert commits == [1, 9]
        counted = Counter(outcome for each in outcomes.values() for outcome in each)
        assert counted == {Outcome.ACCEPTED: 10, Outcome.KNOWN: 10}
        (batch,) = shard.batches()
        assert reports.hits(shard.sums(batch.batch)) == Counter(range(10))


@pytest.mark.parametrize(
    ("part", "method"), [("journal", "known"), ("sums", "check"), ("journal", "record"), ("sums", "add")]
)
@pytest.mark.parametrize("error", [JournalFullError("full.", remedy="Wait."), MemoryError()])
def test_a_failed_step_reaches_every_caller_and_the_shard_goes_on(
    tmp_path: Path,
    task: Task,
    clock: ManualClock,
    reports: Reports,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    method: str,
    error: Exception,
) -> None:
    with ShardService(tmp_path / "shard", task, clock, validate_states=True) as shard:

        def failing(_: object) -> None:
            raise error

        committed = method == "add"
        with monkeypatch.context() as patch:
            patch.setattr(getattr(shard._core, part), method, failing)
            with contextlib.nullcontext() if committed else pytest.raises(type(error)):
                answers = shard.accept(reports.some(range(3)))
                assert [answer.outcome for answer in answers] == [Outcome.ACCEPTED] * 3
        expected = Outcome.KNOWN if committed else Outcome.ACCEPTED
        assert [answer.outcome for answer in shard.accept(reports.some(range(3)))] == [expected] * 3
        (batch,) = shard.batches()
        assert reports.hits(shard.sums(batch.batch)) == Counter(range(3))
