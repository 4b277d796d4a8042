"""Upload times: the intended distribution, whatever there is to send and whenever it came."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats
from transport.held import HeldUploader
from waiting import until

from penrose_ray.clock import ManualClock
from penrose_ray.errors import TransportError
from penrose_ray.transport.background import BackgroundOutbox
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.outbox import Outbox
from penrose_ray.transport.pace import Pace

if TYPE_CHECKING:
    from collections.abc import Callable

MEAN_S = 300.0
TICK_S = 1.0


def upload_times(arrivals: Callable[[int], int], ticks: int, seed: int) -> np.ndarray:
    """Times of uploads when `arrivals(tick)` reports come at each tick of a second."""
    clock = ManualClock(0.0)
    times: list[float] = []
    outbox = Outbox(
        DirectUploader(lambda _: times.append(clock.now_s())),
        clock,
        rng=random.Random(seed),  # noqa: S311 - a seeded test
        pace=Pace(MEAN_S),
    )
    for tick in range(ticks):
        for _ in range(arrivals(tick)):
            outbox.put(b"r")
        outbox.flush()
        clock.advance(TICK_S)
    return np.array(times)


def test_a_burst_leaves_with_exponential_gaps() -> None:
    times = upload_times(lambda tick: 1000 * (tick == 0), 400_000, seed=1)

    assert len(times) == 1000
    gaps = np.diff(times, prepend=0.0)
    assert stats.kstest(gaps, "expon", args=(0, MEAN_S)).pvalue > 0.01


def test_a_lone_report_waits_as_long_whenever_it_comes() -> None:
    every_s = 20 * round(MEAN_S)
    times = upload_times(lambda tick: tick % every_s == 0, 250 * every_s, seed=2)

    waits = times - every_s * np.arange(len(times))
    assert stats.kstest(waits, "expon", args=(0, MEAN_S)).pvalue > 0.01


def test_a_failure_is_repeated_at_a_moment_of_the_pace_too() -> None:
    clock = ManualClock(0.0)
    tries: list[float] = []

    def take(_: bytes) -> None:
        tries.append(clock.now_s())
        raise TransportError("Down.", remedy="Wait.")

    outbox = Outbox(DirectUploader(take), clock, rng=random.Random(3), pace=Pace(MEAN_S))  # noqa: S311
    outbox.put(b"r")
    while len(tries) < 300:
        outbox.flush()
        clock.advance(TICK_S)
    gaps = np.diff(tries)
    assert gaps.mean() == pytest.approx(MEAN_S, rel=0.2)
    assert gaps.min() < MEAN_S / 10


def test_a_held_outbox_sends_nothing_until_then() -> None:
    clock, times = ManualClock(0.0), []
    outbox = Outbox(DirectUploader(lambda _: times.append(clock.now_s())), clock)
    outbox.hold(60.0)
    outbox.put(b"r")
    assert not outbox.flush()
    clock.advance(59.0)
    assert not outbox.flush()
    clock.advance(1.0)
    assert outbox.flush()
    assert times == [60.0]


def test_clients_that_start_together_do_not_send_together() -> None:
    firsts = [upload_times(lambda tick: tick == 0, 3000, seed)[0] for seed in range(60)]
    assert stats.kstest(firsts, "expon", args=(0, MEAN_S)).pvalue > 0.01


def test_sending_in_the_background_never_holds_up_put_and_flush() -> None:
    uploader = HeldUploader()
    outbox = BackgroundOutbox(uploader, ManualClock())
    outbox.put(b"1")
    assert uploader.started.wait(120)
    outbox.put(b"2")
    assert not outbox.flush()
    assert len(outbox) == 2
    uploader.release.set()
    until(outbox.flush)
    outbox.close()
    assert uploader.taken == [b"1", b"2"]


def test_what_ends_the_background_reaches_whoever_flushes() -> None:
    def take(_: bytes) -> None:
        raise ZeroDivisionError

    outbox = BackgroundOutbox(DirectUploader(take), ManualClock())
    outbox.put(b"1")
    outbox._thread.join(120)
    with pytest.raises(ZeroDivisionError):
        outbox.flush()
