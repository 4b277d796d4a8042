"""The intake of a task with tokens: each report is paid for, once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer
from e2e.one_shard import OneShard

from penrose_ray.actors.gateway import application
from penrose_ray.actors.intake import Intake
from penrose_ray.actors.matcher import Matcher
from penrose_ray.aggregate.arrival import Outcome
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.release.issuing import Issuer, IssuerKeys
from penrose_ray.release.tokens import DAY_S, Asker
from penrose_ray.seal import Contribution, Sealer
from penrose_ray.snippet.minhash import signature
from penrose_ray.task import sign
from penrose_ray.transport.http import fetch_quote
from penrose_ray.types import ReportId
from penrose_ray.wire import decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

DAY = 20_000
NOW_S = DAY * DAY_S + 7200.0


class Local(OneShard):
    """Under a clock that stands still."""

    def __init__(self, home: Path, signed: bytes, task: Task) -> None:
        self.matcher = Matcher(home / "classes.sqlite", signed)
        self.shard = ShardService(home / "shard.sqlite", task, ManualClock(NOW_S))


class World:
    """A task with tokens, its issuer, and an intake."""

    def __init__(self, home: Path, make_task: Callable[..., Task], keys: DesignKeys) -> None:
        issuer_keys = IssuerKeys.generate(DAY, 2)
        self.task = make_task(tokens_per_day=8, hostile_clients=0, issuer_keys=issuer_keys.public().encode())
        signed = sign(self.task, keys.signing).encode()
        self.backend = Local(home, signed, self.task)
        self.intake = Intake(signed, self.backend, most_reports=8)
        self._issuer = Issuer(home / "issuer.sqlite", issuer_keys, tokens_per_day=8, clock=ManualClock(NOW_S))
        self._credential = self._issuer.enrol("one")
        self._sealer = Sealer(self.task, "Test GPU", Encryptor(self.task.key(), self.task.profile()))

    def token(self) -> bytes:
        asker = Asker(self.task.task_id, self.task.issuer_keys, DAY)
        request = asker.request()
        (answer,) = self._issuer.sign(self._credential, [request.blinded.request])
        return asker.finish(request, answer).encode()

    def record(self, token: bytes, *, now_s: float = NOW_S) -> bytes:
        counts = np.bincount([3] * 50, minlength=128).astype(np.int64)
        names = [f"kernel_{n}" for n in range(20)]
        snippet = signature(np.arange(200) % 20, names, scheme_id=self.task.signature_scheme)
        contribution = Contribution(0, counts, real=True)
        return encode(self._sealer.seal(contribution, snippet, now_s=now_s, token=token))

    def send(self, record: bytes) -> tuple[str, str]:
        (answer,) = asyncio.run(self.intake.take(record))
        outcome = getattr(answer, "outcome", None)
        return (outcome.value, "") if outcome else (answer.code, answer.detail)  # type: ignore[union-attr]

    def close(self) -> None:
        self.backend.shard.close()
        self._issuer.close()


@pytest.fixture
def world(tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys) -> Iterator[World]:
    world = World(tmp_path, make_task, design_keys)
    yield world
    world.close()


def test_a_paid_report_is_accepted_and_its_repeat_acknowledged(world: World) -> None:
    record = world.record(world.token())
    assert [world.send(record)[0] for _ in range(3)] == [
        Outcome.ACCEPTED.value,
        Outcome.KNOWN.value,
        Outcome.KNOWN.value,
    ]


def test_a_token_spent_on_a_second_report_counts_once(world: World) -> None:
    token = world.token()
    assert world.send(world.record(token))[0] == "accepted"
    assert world.send(world.record(token))[0] == "known"
    assert world.backend.shard.counts().reports == 1


def test_reports_without_token_with_a_forged_one_or_of_another_day_are_refused(world: World) -> None:
    token = world.token()
    forged = bytearray(token)
    forged[-1] ^= 1
    for record in (world.record(b""), world.record(bytes(forged)), world.record(token, now_s=NOW_S + DAY_S)):
        code, detail = world.send(record)
        assert code == "token"
        assert detail
    assert world.backend.shard.counts().reports == 0


def test_a_report_id_that_is_not_the_tokens_is_refused(world: World) -> None:
    """Else one token could be spent under many ids."""
    report = decode(world.record(world.token()))
    other = encode(msgspec.structs.replace(report, report_id=ReportId(b"i" * 32)))
    assert world.send(other) == ("token", "The id is not that of the token.")


def test_a_report_with_token_fits_the_record(world: World) -> None:
    assert len(world.record(world.token())) == 4096


def test_the_gateway_shows_its_quote(world: World) -> None:
    async def shown() -> bytes:
        async with TestClient(TestServer(application(world.intake))) as client:
            url = str(client.make_url("/"))
            return await asyncio.to_thread(fetch_quote, url, world.task.task_id)

    assert asyncio.run(shown()) == b""
    world.intake.quote = b"quote"
    assert asyncio.run(shown()) == b"quote"
