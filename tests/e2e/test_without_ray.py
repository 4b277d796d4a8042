"""The whole way without Ray: clients, gateway's intake, a shard in a killed process, gate, opening."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from multiprocessing.connection import Client as Connect
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from e2e import fleet

from penrose_ray.actors.intake import Intake
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.errors import TransportError
from penrose_ray.opening import open_sums
from penrose_ray.release.handover import build
from penrose_ray.snippet.journal import ClassJournal
from penrose_ray.snippet.minhash import Signature
from penrose_ray.task import Task, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from penrose_ray.aggregate.arrival import Answer, Arrival
    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.types import ReportId

HERE = Path(__file__).parent


class ShardProcess:
    """Starts, kills and restarts the child; a call to a dead one raises TransportError."""

    def __init__(self, home: Path, task_file: Path) -> None:
        self._home = home
        self._task_file = task_file
        self.starts = 0
        self.start()

    def start(self) -> None:
        socket = self._home / f"shard-{self.starts}.socket"
        self.starts += 1
        self._process = subprocess.Popen(
            [sys.executable, HERE / "shard_process.py", socket, self._home / "shard.sqlite", self._task_file]
        )
        self._connection = self._connected(socket)

    def _connected(self, socket: Path) -> Connection:
        while True:
            assert self._process.poll() is None, "the shard's process ended at start"
            try:
                return Connect(str(socket), family="AF_UNIX")
            except (FileNotFoundError, ConnectionRefusedError):  # it does not listen yet
                os.sched_yield()

    def call(self, method: str, *arguments: object) -> object:
        try:
            self._connection.send((method, arguments))
            return self._connection.recv()
        except (OSError, EOFError) as error:
            raise TransportError(f"the shard is gone: {error}", remedy="again") from error

    def send_and_kill(self, method: str, *arguments: object) -> None:
        """The worst moment: whether the commit happened, nobody knows."""
        self._connection.send((method, arguments))
        self.kill()
        raise TransportError("the acknowledgement was lost", remedy="again")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._connection.close()


class Backend:
    """The gateway's view: a journalled matcher in this process, one shard in the child."""

    def __init__(self, shard: ShardProcess, classes: ClassJournal) -> None:
        self._shard = shard
        self.classes = classes
        self.accepts = 0
        self.kill_in_flight_at: set[int] = set()

    async def owner_of(self, _report_id: ReportId) -> str:
        return "only"

    async def refresh(self) -> None:
        raise AssertionError("nothing moves here")

    async def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        return self.classes.match(
            [(model, Signature.from_bytes(scheme, raw)) for model, scheme, raw in wanted]
        )

    async def known(self, _shard: str, ids: Sequence[ReportId]) -> set[ReportId]:
        return self._shard.call("known", list(ids))  # type: ignore[return-value]

    async def accept(self, _shard: str, arrivals: Sequence[Arrival]) -> list[Answer]:
        self.accepts += 1
        if self.accepts in self.kill_in_flight_at:
            self._shard.send_and_kill("accept", list(arrivals))
        return self._shard.call("accept", list(arrivals))  # type: ignore[return-value]


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
def service(tmp_path: Path, design_keys: DesignKeys) -> Iterator[tuple[Intake, Backend, ShardProcess]]:
    trace = tmp_path / "client-0.json.gz"
    fleet.write_trace(trace, seed=1, rounds=4)
    signed = fleet.signed_task(design_keys, fleet.counters_of(trace)).encode()
    (tmp_path / "task").write_bytes(signed)
    task = verify(signed)
    shard = ShardProcess(tmp_path, tmp_path / "task")
    classes = ClassJournal(tmp_path / "classes.sqlite", task.signature_scheme, task.similarity)
    backend = Backend(shard, classes)
    yield Intake(signed, backend, most_reports=100), backend, shard
    shard.kill()
    classes.close()


def test_decrypted_sums_equal_plain_sums_through_crashes_and_repeats(
    tmp_path: Path, design_keys: DesignKeys, service: tuple[Intake, Backend, ShardProcess]
) -> None:
    intake, backend, shard = service
    backend.kill_in_flight_at = {9, 31}
    truth = fleet.Truth()
    uploader = FlakyUploader(intake, shard)
    seed = secrets.randbits(32)
    print("seed", seed)  # noqa: T201 - shown when the test fails
    for number in range(3):
        trace = tmp_path / f"client-{number}.json.gz"
        fleet.write_trace(trace, seed=seed + number, rounds=4)
        client, outbox = fleet.replay_client(
            trace, intake.task, uploader, truth, clock=SystemClock(), seed=seed + number
        )
        while client.step(1000):
            pass
        client.finish()
        assert len(outbox) == 0
    assert shard.starts == 4, "one kill between commits, two in flight"
    assert uploader.repeated >= 3
    _assert_equal(intake.task, design_keys, backend, shard, truth)


def _assert_equal(
    task: Task, keys: DesignKeys, backend: Backend, shard: ShardProcess, truth: fleet.Truth
) -> None:
    (open_batch,) = shard.call("batches")  # type: ignore[misc]
    shard.call("close_batch", open_batch.batch)
    parts = shard.call("sums", open_batch.batch)
    models = {each.class_id: each.gpu_model for each in backend.classes.classes()}
    encryptor = Encryptor(task.key(), task.profile())
    handover = build(task, parts, models.__getitem__, encryptor)  # type: ignore[arg-type]
    opening = open_sums(task, handover.batch, handover.entries, keys.paillier)

    wanted: dict[tuple[bytes, str], np.ndarray] = {}
    reports: dict[tuple[bytes, str], int] = {}
    for (signature, counter_set), counts in truth.counts.items():
        model = next(iter(models.values()))
        known = Signature.from_bytes(task.signature_scheme, signature)
        (found,) = backend.classes.match([(model, known)])
        key = (found.class_id, task.counter_sets[counter_set].name)
        wanted[key] = wanted.get(key, 0) + counts
        reports[key] = reports.get(key, 0) + truth.reports[signature, counter_set]

    assert not opening.discarded
    assert handover.withheld.sums == 0
    assert len({each.class_id for each in opening.sums}) == 2, "two programs, two classes"
    assert {(each.class_id, each.counter_set.name) for each in opening.sums} == wanted.keys()
    for each in opening.sums:
        key = (each.class_id, each.counter_set.name)
        np.testing.assert_array_equal(each.counts, wanted[key])
        assert each.reports == reports[key]
        assert each.samples > 0
