from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import msgspec
import pytest

from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.service import ShardService

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.clock import ManualClock
    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

HOUR_S = 3600


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shard-0.journal"


@pytest.fixture
def shard(path: Path, task: Task, clock: ManualClock) -> Iterator[ShardService]:
    with ShardService(path, task, clock, validate_states=True) as service:
        yield service


def bins(*hit: int) -> list[int]:
    return [hit.count(bin_) for bin_ in range(128)]


def batch_of(shard: ShardService) -> int:
    (batch,) = shard.batches()
    return batch.batch


def opened(shard: ShardService, reports: Reports, batch: int) -> dict[bytes, list[int]]:
    return {total.class_id: reports.opened(total) for total in shard.sums(batch)}


def test_the_decrypted_sum_is_the_sum_of_what_was_accepted(shard: ShardService, reports: Reports) -> None:
    answers = shard.accept(reports.some(range(5)))
    assert [answer.outcome for answer in answers] == [Outcome.ACCEPTED] * 5
    (total,) = shard.sums(batch_of(shard))
    assert total.weight == 5
    assert reports.opened(total) == bins(0, 1, 2, 3, 4)


def test_the_checksum_is_the_xor_of_hashed_ids(shard: ShardService, reports: Reports) -> None:
    arrivals = reports.some(range(3))
    shard.accept(arrivals)
    expected = bytearray(32)
    for arrival in arrivals:
        expected = bytearray(
            a ^ b for a, b in zip(expected, hashlib.sha256(arrival.report_id).digest(), strict=True)
        )
    (total,) = shard.sums(batch_of(shard))
    assert total.id_checksum == bytes(expected)


def test_each_class_and_counter_set_has_its_own_sum(shard: ShardService, reports: Reports) -> None:
    shard.accept([reports.one(0), reports.one(1, name="b"), reports.one(2, counter_set=1), reports.one(3)])
    totals = shard.sums(batch_of(shard))
    assert sorted((reports.opened(total), total.counter_set) for total in totals) == sorted(
        [(bins(0, 3), 0), (bins(1), 0), (bins(2), 1)]
    )


def test_a_retry_is_acknowledged_and_counts_once(shard: ShardService, reports: Reports) -> None:
    shard.accept(reports.some(range(3)))
    answers = shard.accept(reports.some(range(1, 4)))
    assert [answer.outcome for answer in answers] == [Outcome.KNOWN, Outcome.KNOWN, Outcome.ACCEPTED]
    assert opened(shard, reports, batch_of(shard)).popitem()[1] == bins(0, 1, 2, 3)


@pytest.mark.parametrize("after", [0, 1])
def test_no_memory_for_the_ids_of_a_commit_counts_nothing_twice(
    shard: ShardService, reports: Reports, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Acknowledged or not, what is in the journal is known: sent again, it counts once."""
    shard.accept(reports.some(range(3)))

    def none(*_: object) -> NoReturn:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("penrose_ray.aggregate.id_index._run", none)
        for _ in range(1 + after):
            with pytest.raises(MemoryError):
                shard.accept(reports.some(range(3, 6)))
    shard.accept(reports.some(range(6)))
    assert opened(shard, reports, batch_of(shard)).popitem()[1] == bins(*range(6))
    assert len(list(shard._core.journal.rows())) == 6, "what a restart would add up"


def test_duplicates_inside_one_call_count_once(shard: ShardService, reports: Reports) -> None:
    one, two = reports.some(range(2))
    answers = shard.accept([one, two, one, one])
    assert [answer.outcome for answer in answers] == [
        Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.KNOWN, Outcome.KNOWN
    ]  # fmt: skip
    assert [answer.report_id for answer in answers] == [
        one.report_id,
        two.report_id,
        one.report_id,
        one.report_id,
    ]
    assert opened(shard, reports, batch_of(shard)).popitem()[1] == bins(0, 1)


def test_the_class_of_first_acceptance_stays(shard: ShardService, reports: Reports) -> None:
    first = reports.one(7)
    shard.accept([first])
    shard.accept([reports.one(7, name="merged")])
    assert opened(shard, reports, batch_of(shard)) == {first.class_id: bins(7)}


@pytest.mark.parametrize(
    ("hours", "outcome"),
    [
        (2, Outcome.REFUSED_TOO_EARLY),
        (1, Outcome.ACCEPTED),
        (-36, Outcome.ACCEPTED),
        (-37, Outcome.REFUSED_TOO_LATE),
    ],
)
def test_the_age_rule(
    shard: ShardService, reports: Reports, clock: ManualClock, hours: int, outcome: Outcome
) -> None:
    hour = int(clock.now_s() // HOUR_S) + hours
    assert [answer.outcome for answer in shard.accept([reports.one(0, hour=hour)])] == [outcome]


def test_a_known_id_is_acknowledged_before_its_age_is_judged(
    shard: ShardService, reports: Reports, clock: ManualClock
) -> None:
    report = reports.one(0)
    shard.accept([report])
    clock.advance(40 * HOUR_S)
    assert shard.accept([report])[0].outcome is Outcome.KNOWN
    assert shard.accept([reports.one(1)])[0].outcome is Outcome.REFUSED_TOO_LATE


def test_a_known_id_is_acknowledged_even_with_other_bytes(shard: ShardService, reports: Reports) -> None:
    report = reports.one(0)
    shard.accept([report])
    assert shard.accept([replace(report, blob=b"", counter_set=99)])[0].outcome is Outcome.KNOWN


@pytest.mark.parametrize("kind", ["short", "zero", "large", "factor"])
def test_a_bad_ciphertext_is_refused_and_the_rest_counts(
    shard: ShardService, reports: Reports, task: Task, kind: str
) -> None:
    width = task.profile().ciphertext_bytes
    key = task.key()
    blob = {
        "short": reports.blob(1)[:-1],
        "zero": bytes(width) + reports.blob(1)[width:],
        "large": int(key.n_squared).to_bytes(width, "little") + reports.blob(1)[width:],
        "factor": int(key.n).to_bytes(width, "little") + reports.blob(1)[width:],
    }[kind]
    answers = shard.accept([reports.one(0), reports.one(1, blob=blob), reports.one(2)])
    assert [answer.outcome for answer in answers] == [
        Outcome.ACCEPTED, Outcome.REFUSED_CIPHERTEXT, Outcome.ACCEPTED
    ]  # fmt: skip
    assert answers[1].detail
    assert opened(shard, reports, batch_of(shard)).popitem()[1] == bins(0, 2)


def test_an_unknown_counter_set_is_refused(shard: ShardService, reports: Reports) -> None:
    answers = shard.accept([reports.one(0, counter_set=2)])
    assert answers[0].outcome is Outcome.REFUSED_COUNTER_SET
    assert answers[0].detail == "counter set 2, the task has 2"


def test_a_report_of_a_released_batch_joins_the_next_one(shard: ShardService, reports: Reports) -> None:
    shard.accept(reports.some(range(2)))
    batch = batch_of(shard)
    shard.close_batch(batch)
    before = shard.sums(batch)
    assert shard.accept([reports.one(1), reports.one(2)])[1].outcome is Outcome.ACCEPTED
    assert shard.sums(batch) == before
    assert batch_of(shard) == batch + 1
    assert opened(shard, reports, batch + 1).popitem()[1] == bins(2)


def test_closing_twice_changes_nothing(shard: ShardService, reports: Reports) -> None:
    shard.accept(reports.some(range(2)))
    batch = batch_of(shard)
    shard.close_batch(batch)
    shard.close_batch(batch)
    assert shard.batches() == []
    assert shard.counts().released_batches == 1


def test_reopening_rebuilds_exactly(path: Path, task: Task, clock: ManualClock, reports: Reports) -> None:
    with ShardService(path, task, clock) as shard:
        shard.accept([*reports.some(range(4)), reports.one(9, name="b", counter_set=1)])
        first = batch_of(shard)
        shard.close_batch(first)
        shard.accept([reports.one(5)])
        sums = [shard.sums(first), shard.sums(first + 1)]
        batches = shard.batches()
    with ShardService(path, task, clock) as shard:
        assert [shard.sums(first), shard.sums(first + 1)] == sums
        assert shard.batches() == batches
        assert shard.known([reports.one(5).report_id, reports.one(6).report_id]) == {reports.one(5).report_id}
        assert shard.accept([reports.one(3)])[0].outcome is Outcome.KNOWN


def test_counts_tell_outcomes(shard: ShardService, reports: Reports) -> None:
    shard.accept([reports.one(0), reports.one(0), reports.one(1, counter_set=5)])
    counts = shard.counts()
    assert (counts.reports, counts.sums, counts.open_batches) == (1, 1, 1)
    assert counts.outcomes == {"accepted": 1, "known": 1, "counter-set": 1}


def test_the_operators_query_answers(shard: ShardService, path: Path, reports: Reports) -> None:
    shard.accept([*reports.some(range(3)), *reports.some(range(3, 5), name="b")])
    query = """
        SELECT snippet_hash, COUNT(*) FROM partial_histograms
        GROUP BY snippet_hash ORDER BY COUNT(*) DESC LIMIT 10;
    """
    database = sqlite3.connect(path)
    try:
        rows = database.execute(query).fetchall()
    finally:
        database.close()
    names = [hashlib.sha256(hashlib.sha256(name).digest() * 2).hexdigest() for name in (b"a", b"b")]
    assert rows == [(names[0], 3), (names[1], 2)]


def test_a_full_sum_refuses_more(path: Path, task: Task, clock: ManualClock, reports: Reports) -> None:
    most = task.profile().slot_max // 2
    small = msgspec.structs.replace(task, samples_per_histogram=most, min_contributors=1)
    assert small.capacity() == 2
    with ShardService(path, small, clock, validate_states=True) as shard:
        answers = shard.accept([*reports.some(range(3)), reports.one(3, name="b")])
        assert [answer.outcome for answer in answers] == [
            Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.REFUSED_CAPACITY, Outcome.ACCEPTED
        ]  # fmt: skip
        assert shard.accept([reports.one(2)])[0].outcome is Outcome.REFUSED_CAPACITY


class JumpingClock:
    """A clock that is set forward or back."""

    def __init__(self, now_s: float) -> None:
        self.time_s = now_s

    def now_s(self) -> float:
        return self.time_s

    def monotonic_ns(self) -> int:
        return 0


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_clock_set_an_hour_off_loses_and_doubles_nothing(
    path: Path, task: Task, clock: ManualClock, reports: Reports, jump_s: int
) -> None:
    jumping = JumpingClock(clock.now_s())
    with ShardService(path, task, jumping, validate_states=True) as shard:
        shard.accept(reports.some(range(3)))
        jumping.time_s += jump_s
        shard.upkeep.tick()
        shard.accept(reports.some(range(6)))
        jumping.time_s -= jump_s
        shard.upkeep.tick()
        shard.accept(reports.some(range(9)))
        assert reports.hits(shard.sums(batch_of(shard))) == dict.fromkeys(range(9), 1)


def test_a_retry_after_24_hours_and_a_release_counts_once(
    shard: ShardService, reports: Reports, clock: ManualClock
) -> None:
    shard.accept(reports.some(range(3)))
    batch = batch_of(shard)
    shard.close_batch(batch)
    clock.advance(24 * HOUR_S)
    shard.upkeep.tick()
    assert {answer.outcome for answer in shard.accept(reports.some(range(3)))} == {Outcome.KNOWN}
    assert reports.hits(shard.sums(batch)) == dict.fromkeys(range(3), 1)
    assert shard.batches() == []


def test_a_closed_batch_can_still_be_handed_over(shard: ShardService, reports: Reports) -> None:
    shard.accept(reports.some(range(3)))
    batch = batch_of(shard)
    shard.close_batch(batch)
    assert [(each.batch, each.reports) for each in shard.closed_batches()] == [(batch, 3)]
