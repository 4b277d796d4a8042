from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from penrose_ray.clock import ManualClock
from penrose_ray.errors import RefusedReportError, SpoolError, TransportError
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.outbox import Backoff, Outbox
from penrose_ray.transport.queue import MemoryQueue, Waiting
from penrose_ray.transport.uploader import BusyError, StuckError

DOWN = TransportError("The gateway is down.", remedy="It is sent again.")
REFUSED = RefusedReportError("Too old.", remedy="Set the clock.")


@dataclass
class Service:
    """Takes records, or fails as often as it was told to."""

    failures: list[Exception] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)
    tries: int = 0

    def take(self, record: bytes) -> None:
        self.tries += 1
        if self.failures:
            raise self.failures.pop(0)
        self.taken.append(record)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def outbox(service: Service, clock: ManualClock, most: int = 4096) -> Outbox:
    backoff = Backoff(first_s=1.0, longest_s=8.0)
    rng = random.Random(1)  # noqa: S311 - a seeded test
    return Outbox(DirectUploader(service.take), clock, most=most, backoff=backoff, rng=rng)


def test_records_go_out_in_their_order(clock: ManualClock) -> None:
    service = Service()
    box = outbox(service, clock)
    for record in (b"1", b"2", b"3"):
        box.put(record)

    assert len(box) == 3
    assert box.flush()
    assert service.taken == [b"1", b"2", b"3"]
    assert (box.counts.sent, len(box)) == (3, 0)


def test_the_same_bytes_are_sent_again_and_none_overtakes(clock: ManualClock) -> None:
    service = Service([DOWN])
    box = outbox(service, clock)
    box.put(b"1")
    box.put(b"2")

    assert not box.flush()
    assert service.taken == []
    assert box.last_error is DOWN
    clock.advance(1.0)
    assert box.flush()
    assert service.taken == [b"1", b"2"]
    assert (box.counts.sent, box.counts.retries) == (2, 1)


def test_nothing_is_tried_before_the_pause_is_over(clock: ManualClock) -> None:
    service = Service([BusyError("Busy.", remedy="Wait.", retry_after_s=60.0)])
    box = outbox(service, clock)
    box.put(b"1")
    box.flush()

    clock.advance(59.9)
    assert not box.flush()
    assert service.tries == 1
    clock.advance(0.1)
    assert box.flush()
    assert service.tries == 2


class SetClock(ManualClock):
    """A clock whose wall time is set by hand while its monotonic time goes on."""

    off_s = 0.0

    def now_s(self) -> float:
        return super().now_s() + self.off_s


@pytest.mark.parametrize("off_s", [-7200.0, 7200.0])
def test_a_wall_clock_that_is_set_neither_stops_uploads_nor_shortens_a_pause(off_s: float) -> None:
    clock = SetClock()
    service = Service([DOWN])
    box = outbox(service, clock)
    box.put(b"1")
    assert not box.flush()
    clock.off_s = off_s
    assert not box.flush()
    assert service.tries == 1, "the pause is not over"
    clock.advance(1.0)
    assert box.flush()


def test_pauses_double_up_to_the_longest(clock: ManualClock) -> None:
    service = Service([DOWN] * 200)
    box = outbox(service, clock)
    box.put(b"1")
    waits = []
    for _ in range(200):
        failed_at = clock.now_s()
        tries = service.tries
        while service.tries == tries:
            box.flush()
            clock.advance(0.01)
        waits.append(clock.now_s() - failed_at)

    assert max(waits[1:2]) <= 1.03
    assert 7.0 < max(waits) <= 8.1
    assert sum(waits[20:]) / len(waits[20:]) == pytest.approx(4.0, abs=0.6)


def test_success_starts_the_pauses_anew(clock: ManualClock) -> None:
    service = Service([DOWN] * 6)
    box = outbox(service, clock)
    box.put(b"1")
    while not box.flush():
        clock.advance(8.0)
    service.failures = [DOWN]
    box.put(b"2")
    box.flush()

    clock.advance(1.0)
    assert box.flush()


def test_a_refused_record_is_counted_and_does_not_hold_up_the_next(clock: ManualClock) -> None:
    service = Service([REFUSED])
    box = outbox(service, clock)
    box.put(b"bad")
    box.put(b"good")

    assert box.flush()
    assert service.taken == [b"good"]
    assert (box.counts.refused, box.counts.sent, box.counts.retries) == (1, 1, 0)
    assert box.last_error is REFUSED


def test_past_the_bound_the_oldest_record_is_dropped_and_counted(clock: ManualClock) -> None:
    service = Service()
    box = outbox(service, clock, most=2)
    for record in (b"1", b"2", b"3"):
        box.put(record)

    box.flush()

    assert service.taken == [b"2", b"3"]
    assert box.counts.dropped == 1


def test_an_error_of_the_service_s_own_making_reaches_the_caller(clock: ManualClock) -> None:
    box = outbox(Service([ZeroDivisionError()]), clock)
    box.put(b"1")

    with pytest.raises(ZeroDivisionError):
        box.flush()
    assert len(box) == 1


def test_a_record_that_the_service_fails_at_lets_the_others_pass_and_is_given_up_in_the_end(
    clock: ManualClock,
) -> None:
    taken: list[bytes] = []

    def take(record: bytes) -> None:
        if record == b"bad":
            raise StuckError("The gateway failed with 507.", remedy="Later.")
        taken.append(record)

    box = Outbox(DirectUploader(take), clock, backoff=Backoff(first_s=1.0, longest_s=8.0))
    for record in (b"bad", b"1", b"2"):
        box.put(record)
    assert not box.flush()
    clock.advance(9)
    box.flush()
    assert taken == [b"1", b"2"]

    for _ in range(40):
        clock.advance(9)
        box.flush()
    assert (len(box), box.counts.refused, box.counts.sent) == (0, 1, 2)


class FailingQueue(MemoryQueue):
    """One of its steps fails as long as `failing` names it."""

    def __init__(self, failing: str) -> None:
        super().__init__(10)
        self.failing = failing

    def _step(self, name: str) -> None:
        if name == self.failing:
            raise SpoolError("The spool cannot be used: full.", remedy="Free space.")

    def first(self, now_s: float) -> Waiting | None:
        self._step("first")
        return super().first(now_s)

    def remove(self, number: int) -> None:
        self._step("remove")
        super().remove(number)

    def put_behind(self, number: int) -> None:
        self._step("put_behind")
        super().put_behind(number)


@pytest.mark.parametrize("failing", ["first", "remove", "put_behind"])
def test_a_queue_that_fails_loses_nothing_and_the_client_goes_on(clock: ManualClock, failing: str) -> None:
    taken: list[bytes] = []

    def take(record: bytes) -> None:
        if failing == "put_behind" and record not in taken:
            taken.append(record)
            raise StuckError("The gateway failed with 507.", remedy="Later.")
        taken.append(record)

    queue = FailingQueue(failing)
    box = Outbox(DirectUploader(take), clock, backoff=Backoff(first_s=1.0, longest_s=1.0), queue=queue)
    box.put(b"1")
    assert not box.flush()
    assert isinstance(box.last_error, SpoolError)
    assert len(box) == 1

    queue.failing = ""
    for _ in range(3):
        clock.advance(2)
        box.flush()
    assert (len(box), taken[-1], box.counts.dropped) == (0, b"1", 0)
