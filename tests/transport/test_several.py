"""Several addresses of one service."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from penrose_ray.errors import RefusedReportError, TransportError
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.several import AnyOf
from penrose_ray.transport.uploader import BusyError


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - a seeded test


def failing(error: Exception) -> DirectUploader:
    def fail(_: bytes) -> None:
        raise error

    return DirectUploader(fail)


def test_each_address_gets_its_share() -> None:
    """900 uploads to three: each within five standard deviations (14.1) of 300."""
    taken: Counter[int] = Counter()
    any_of = AnyOf([DirectUploader(lambda _, at=at: taken.update([at])) for at in range(3)], rng=seeded(3))
    for _ in range(900):
        any_of.send(b"x")
    assert sum(taken.values()) == 900
    assert all(230 < count < 370 for count in taken.values())


def test_an_address_that_is_away_costs_nothing() -> None:
    taken: list[bytes] = []
    away = failing(TransportError("away", remedy=""))
    any_of = AnyOf([away, DirectUploader(taken.append), away], rng=seeded(3))
    for number in range(20):
        any_of.send(bytes([number]))
    assert taken == [bytes([number]) for number in range(20)]


def test_where_all_fail_a_wish_for_a_pause_is_handed_on() -> None:
    busy = BusyError("busy", remedy="", retry_after_s=7.0)
    for seed in range(5):
        any_of = AnyOf([failing(TransportError("away", remedy="")), failing(busy)], rng=seeded(seed))
        with pytest.raises(BusyError) as raised:
            any_of.send(b"x")
        assert raised.value.retry_after_s == 7.0


def test_a_refusal_is_final() -> None:
    asked: list[bytes] = []

    def refuse(record: bytes) -> None:
        asked.append(record)
        raise RefusedReportError("no", remedy="")

    with pytest.raises(RefusedReportError):
        AnyOf([DirectUploader(refuse)] * 3).send(b"x")
    assert asked == [b"x"]
