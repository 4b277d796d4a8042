"""When clients that are alike do what they all do: at moments of their own."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np
from e2e import fleet
from scipy import stats

from penrose_ray.actors.client import Enrolled
from penrose_ray.actors.daemon import HostClient
from penrose_ray.actors.moments import Moments
from penrose_ray.capture.replay import ReplaySource
from penrose_ray.clock import ManualClock
from penrose_ray.task import verify
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.outbox import Outbox
from penrose_ray.transport.pace import closing_window_s
from penrose_ray.wire import decode

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

DAY_S = 86_400.0
DAY = 20_000


def test_moments_are_uniform_kept_and_tell_nothing_of_one_another() -> None:
    clients = [Moments(number.to_bytes(32, "big")) for number in range(5000)]

    def drawn(purpose: str, number: int) -> np.ndarray:
        return np.array([each.offset_s(purpose, number, 100.0) for each in clients])

    first, next_one, other = drawn("batch", 7), drawn("batch", 8), drawn("tokens", 7)
    for each in (first, next_one, other):
        assert stats.kstest(each, "uniform", args=(0, 100)).pvalue > 0.001
    assert (first == drawn("batch", 7)).all()
    for each in (next_one, other):
        assert stats.spearmanr(first, each).pvalue > 0.001


def test_a_fleet_sends_a_batch_in_the_half_day_after_it_and_not_at_its_end(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    """Reports are made at the end, say so to the hour, and go when their client's moment has come."""
    trace = tmp_path / "trace.json.gz"
    fleet.write_trace(trace, seed=3, rounds=1)
    signed = fleet.signed_task(design_keys, fleet.counters_of(trace), reports_per_class=1, cover_rate=0.0)
    task, clock = verify(signed.encode()), ManualClock((DAY + 1) * DAY_S - 60)
    sent: dict[int, list[float]] = defaultdict(list)
    hours: set[int] = set()
    clients, moments = [], [Moments(bytes([number]) * 32) for number in range(10)]
    for number, each in enumerate(moments):

        def take(record: bytes, number: int = number) -> None:
            sent[number].append(clock.now_s())
            hours.add(decode(record).created_hour)

        client, _ = fleet.replay_client(
            trace, task, DirectUploader(take), fleet.Truth(), clock=clock, seed=number, moments=each
        )
        while client.step():
            pass
        clients.append(client)
    tick_s = 600.0
    clock.advance(60)
    for _ in range(int(DAY_S / 2 / tick_s) + 1):
        for client in clients:
            client.step()
        clock.advance(tick_s)
    window_s = closing_window_s(task.batch_s)
    due = {number: each.offset_s("batch", DAY + 1, window_s) for number, each in enumerate(moments)}
    assert {number: len(times) for number, times in sent.items()} == dict.fromkeys(range(10), 2)
    for number, times in sent.items():
        waited_s = min(times) - (DAY + 1) * DAY_S
        assert due[number] <= waited_s <= due[number] + tick_s
    assert max(due.values()) - min(due.values()) > window_s / 2
    assert hours == {(DAY + 1) * 24 - 1}


def test_a_client_that_is_started_again_waits_for_the_same_moment(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    trace = tmp_path / "trace.json.gz"
    fleet.write_trace(trace, seed=3, rounds=1)
    signed = fleet.signed_task(design_keys, fleet.counters_of(trace), reports_per_class=1, cover_rate=0.0)
    task, moments = verify(signed.encode()), Moments(bytes(32))
    at_s = moments.offset_s("batch", DAY, closing_window_s(task.batch_s))

    def sends_at(started_s: float) -> bool:
        """Whether a life from then on sends what an earlier one left at that moment and not before."""
        clock = ManualClock(DAY * DAY_S + started_s)
        uploader, truth = DirectUploader(lambda _: None), fleet.Truth()
        client, outbox = fleet.replay_client(
            trace, task, uploader, truth, clock=clock, seed=1, moments=moments
        )
        client.step()
        outbox.put(b"left")
        clock.advance(at_s - started_s - 1)
        early = outbox.flush()
        clock.advance(1.001)
        return outbox.flush() and not early

    assert sends_at(0.0)
    assert sends_at(at_s - 2)


class Coins:
    """Tokens that note how they were asked for."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    def top_up(self, *, early: bool = False) -> None:
        self.asked.append(early)

    def left(self, _day: int) -> int:
        return 1 if True in self.asked else 0

    def take(self, _day: int) -> bytes:
        return b"token"


def test_a_client_that_stops_before_its_moment_asks_for_tokens_first(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    trace = tmp_path / "trace.json.gz"
    fleet.write_trace(trace, seed=3, rounds=1)
    fields = {"reports_per_class": 1, "tokens_per_day": 4, "hostile_clients": 0, "min_contributors": 50}
    task = verify(fleet.signed_task(design_keys, fleet.counters_of(trace), **fields).encode())
    records: list[bytes] = []
    clock, coins = ManualClock(), Coins()
    outbox = Outbox(DirectUploader(records.append), clock)
    policy = fleet.POLICY.model_copy(update={"max_overhead_percent": 100})
    host = HostClient(ReplaySource(trace), task, policy, outbox, clock=clock, enrolled=Enrolled(coins))
    host.run(lambda: False, wait=lambda _: None, on_duty=lambda _: None)
    assert coins.asked[-1]
    assert True not in coins.asked[:-1]
    assert len(records) >= 2
