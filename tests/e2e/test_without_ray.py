"""The whole way without Ray: clients, gateway's intake, a shard in a killed process, gate, opening."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from e2e import fleet
from e2e.local_service import LocalService, assert_equal, local_service

from penrose_ray.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.local_service import ShardProcess

    from penrose_ray.actors.intake import Intake
    from penrose_ray.crypto.keyfile import DesignKeys


SEED = 2


class FlakyUploader:
    """Straight into the intake, but some records are delivered twice and one is answered too late."""

    def __init__(self, intake: Intake, shard: ShardProcess) -> None:
        self._intake = intake
        self._shard = shard
        self.sent = 0
        self.repeated = 0

    def send(self, record: bytes) -> None:
        self._deliver(record)
        self.sent += 1
        if self.sent % 5 == 0:
            self.repeated += 1
            self._deliver(record)
        if self.sent == 20:
            self._shard.kill()  # between two commits
            self._shard.start()

    def _deliver(self, record: bytes) -> None:
        try:
            (answer,) = asyncio.run(self._intake.take(record))
        except TransportError:
            self._shard.start()
            (answer,) = asyncio.run(self._intake.take(record))
        assert getattr(answer, "outcome", None) is not None, answer
        assert answer.outcome.acknowledged


@pytest.fixture
def service(tmp_path: Path, design_keys: DesignKeys) -> Iterator[LocalService]:
    trace = tmp_path / "client-0.json.gz"
    fleet.write_trace(trace, seed=1, rounds=4)
    with local_service(
        tmp_path, fleet.signed_task(design_keys, fleet.counters_of(trace), batch_s=fleet.LONG_S).encode()
    ) as running:
        yield running


def test_decrypted_sums_equal_plain_sums_through_crashes_and_repeats(
    tmp_path: Path, design_keys: DesignKeys, service: LocalService
) -> None:
    intake, backend, shard = service
    backend.kill_in_flight_at = {9, 31}
    truth = fleet.Truth()
    uploader = FlakyUploader(intake, shard)
    for outbox in fleet.played(tmp_path, intake.task, uploader, truth, seed=SEED):
        assert len(outbox) == 0
    assert shard.starts == 4, "one kill between commits, two in flight"
    assert uploader.repeated >= 3
    assert_equal(service, design_keys, truth)
