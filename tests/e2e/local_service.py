"""A service without Ray: gateway's intake and a journalled matcher here, one shard in a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from multiprocessing.connection import Client as Connect
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from penrose_ray.actors.intake import Intake
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.errors import TransportError
from penrose_ray.opening import open_sums
from penrose_ray.release.handover import build
from penrose_ray.snippet.journal import ClassJournal
from penrose_ray.snippet.minhash import Signature
from penrose_ray.task import verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from e2e import fleet

    from penrose_ray.aggregate.arrival import Answer, Arrival
    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.release.handover import Handover
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.types import ReportId

HERE = Path(__file__).parent
_MOST_S = 300.0


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
        deadline = time.monotonic() + _MOST_S
        while True:
            assert self._process.poll() is None, "the shard's process ended at start"
            assert time.monotonic() < deadline, "the shard's process does not listen"
            try:
                return Connect(str(socket), family="AF_UNIX")
            except (FileNotFoundError, ConnectionRefusedError):  # it does not listen yet
                os.sched_yield()

    def call(self, method: str, *arguments: object) -> object:
        try:
            self._connection.send((method, arguments))
            assert self._connection.poll(_MOST_S), f"the shard's process does not answer {method}"
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


class LocalService(NamedTuple):
    """Its parts."""

    intake: Intake
    backend: Backend
    shard: ShardProcess


@contextmanager
def local_service(home: Path, signed_task: bytes) -> Iterator[LocalService]:
    """Journals in `home`; ends with the block."""
    (home / "task").write_bytes(signed_task)
    task = verify(signed_task)
    shard = ShardProcess(home, home / "task")
    classes = ClassJournal(home / "classes.sqlite", task.signature_scheme, task.similarity)
    backend = Backend(shard, classes)
    try:
        yield LocalService(Intake(signed_task, backend, most_reports=100), backend, shard)
    finally:
        shard.kill()
        classes.close()


def assert_equal(service: LocalService, keys: DesignKeys, truth: fleet.Truth) -> Handover:
    """Close the batch, hand it over, open it and compare with what clients contributed; two classes."""
    intake, backend, shard = service
    task = intake.task
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
    return handover
