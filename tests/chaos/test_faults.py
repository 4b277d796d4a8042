"""A full disk, clients cut off, parts that hang, a damaged page: sums are exact after each."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import socket
import socketserver
import sqlite3
import threading
from http import HTTPStatus
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from chaos.senders import Senders
from e2e.reports import one_bin_each, opened_bins
from e2e.service_config import settings_in
from waiting import until

from penrose_ray.actors.remote import ask
from penrose_ray.actors.topology import build
from penrose_ray.aggregate.salvage import salvage
from penrose_ray.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.actors.remote import Handle
    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
CLASSES = 2
PAGE = 16_384
CUT = 12
"""Connections that are cut; pauses double, so more would only wait."""


@pytest.fixture
def service(tmp_path: Path, design_keys: DesignKeys) -> Iterator[Topology]:
    with build(*settings_in(tmp_path, design_keys)) as topology:
        yield topology


def pid(handle: Handle) -> int:
    found: int = ask(handle.pid.remote())
    return found


def assert_exact(service: Topology, path: Path) -> None:
    service.open([service.release(batch) for batch in service.batches()], path)
    bins = opened_bins(path)
    assert len(bins) == CLASSES
    assert all(counts == [1] * 128 for counts in bins.values())


def test_a_disk_that_is_full_for_a_while_loses_nothing(service: Topology, tmp_path: Path) -> None:
    records = one_bin_each(service.task, CLASSES)
    pids = [pid(each) for each in service.pool.working.values()]
    senders = Senders(service, records[: len(records) // 2])
    until(lambda: senders.sent() > len(records) // 4)
    for each in pids:  # no file may grow beyond a page: every commit fails, as on a full disk
        resource.prlimit(each, resource.RLIMIT_FSIZE, (PAGE, resource.RLIM_INFINITY))
    senders.add(records[len(records) // 2 :])
    stuck = sum(outbox.counts.retries for outbox in senders.outboxes)
    until(lambda: sum(outbox.counts.retries for outbox in senders.outboxes) > stuck + 5, service.tend)
    for each in pids:
        resource.prlimit(each, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    senders.join()
    assert [pid(each) for each in service.pool.working.values()] == pids, "nobody had to restart"
    assert sum(outbox.counts.refused + outbox.counts.dropped for outbox in senders.outboxes) == 0
    assert_exact(service, tmp_path / "release.parquet")


class Cutter(socketserver.ThreadingTCPServer):
    """Stands before the gateway and cuts the first connections, by turns before and after it answers."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int) -> None:
        self.port, self.seen = port, 0
        self.mutex = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Way)


class _Way(socketserver.BaseRequestHandler):
    server: Cutter

    def handle(self) -> None:
        with self.server.mutex:
            self.server.seen += 1
            number = self.server.seen
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.server.port)) as inner:
            if number <= CUT and number % 2:
                inner.sendall(self.request.recv(1000))  # a piece of the request, then nothing
                return
            sending = threading.Thread(target=self._pass_on, args=(self.request, inner), daemon=True)
            sending.start()
            while piece := inner.recv(65_536):
                if number <= CUT:
                    return  # it has answered, and nobody hears it
                self.request.sendall(piece)

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)


def test_clients_that_are_cut_off_from_the_gateway_count_once(service: Topology, tmp_path: Path) -> None:
    records = one_bin_each(service.task, CLASSES)
    port = int(service.url.rpartition(":")[2])
    with Cutter(port) as cutter:
        thread = threading.Thread(target=cutter.serve_forever)
        thread.start()
        senders = Senders(service, records, url=f"http://127.0.0.1:{cutter.server_address[1]}")
        senders.join()
        cutter.shutdown()
        thread.join()
    assert sum(outbox.counts.retries for outbox in senders.outboxes) >= CUT // 2
    assert_exact(service, tmp_path / "release.parquet")


def is_ready(service: Topology) -> bool:
    """Whether the gateway says that all parts answer."""
    connection = HTTPConnection(service.url.removeprefix("http://"), timeout=10)
    with contextlib.closing(connection):
        try:
            connection.request("GET", "/ready")
            return connection.getresponse().status == HTTPStatus.OK
        except OSError:  # it hangs itself
            return False


def test_parts_that_hang_for_a_while_lose_nothing(service: Topology, tmp_path: Path) -> None:
    records = one_bin_each(service.task, CLASSES)
    senders = Senders(service, records)
    parts = [service.pool.working["shard-0"], service.matcher, service.directory]
    parts += service.gateways.handles.values()
    pids = [pid(each) for each in parts]
    for place, each in enumerate(pids, 1):
        until(lambda: senders.sent() >= place * len(records) // 6)  # noqa: B023 - used at once
        os.kill(each, signal.SIGSTOP)
        until(lambda: not is_ready(service))
        os.kill(each, signal.SIGCONT)
    senders.join()
    assert [pid(each) for each in parts] == pids
    assert_exact(service, tmp_path / "release.parquet")


def test_a_damaged_page_is_named_and_the_rest_is_kept(tmp_path: Path, design_keys: DesignKeys) -> None:
    settings = settings_in(tmp_path, design_keys)
    with build(*settings) as service:
        records = one_bin_each(service.task, CLASSES)
        Senders(service, records).join()
        task_id = service.task.task_id
        (journal,) = (tmp_path / "state").rglob("shard-0.sqlite")
        as_killed = {path: path.read_bytes() for path in journal.parent.glob("shard-0.sqlite*")}
    for path, raw in as_killed.items():
        path.write_bytes(raw)
    with contextlib.closing(sqlite3.connect(journal)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    pages = journal.stat().st_size // PAGE
    with journal.open("r+b") as file:
        file.seek(pages // 2 * PAGE)
        file.write(os.urandom(PAGE))

    with pytest.raises(JournalError, match=re.escape(str(journal))):
        build(*settings)
    found = salvage(journal, task_id)
    assert found.kept > len(found.lost) > 0
    with build(*settings) as service:
        before = service.progress().accepted
        assert before == len(records) - len(found.lost)
        Senders(service, records).join()
        assert service.progress().accepted == len(records)
        assert_exact(service, tmp_path / "release.parquet")
