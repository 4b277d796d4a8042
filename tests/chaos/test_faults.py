"""A full disk, parts that hang: sums are exact after each."""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import TYPE_CHECKING

import pytest
from chaos.senders import Senders
from e2e.reports import one_bin_each, opened_bins
from e2e.service_config import settings_in

from penrose_ray.actors.remote import ask
from penrose_ray.actors.topology import build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.actors.remote import Handle
    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
CLASSES = 2


@pytest.fixture
def service(tmp_path: Path, design_keys: DesignKeys) -> Iterator[Topology]:
    with build(*settings_in(tmp_path, design_keys)) as topology:
        yield topology


def pid(handle: Handle) -> int:
    found: int = ask(handle.pid.remote())
    return found


def until(true: Callable[[], bool], tend: Callable[[], object] = lambda: None) -> None:
    while not true():
        tend()
        time.sleep(0.02)  # polls; nothing depends on its length


def assert_exact(service: Topology, path: Path) -> None:
    service.open([service.release(batch) for batch in service.batches()], path)
    bins = opened_bins(path)
    assert len(bins) == CLASSES
    assert all(counts == [1] * 128 for counts in bins.values())


def test_a_disk_that_is_full_for_a_while_loses_nothing(service: Topology, tmp_path: Path) -> None:
    records = one_bin_each(service.task, CLASSES)
    senders = Senders(service, records)
    until(lambda: senders.sent() > len(records) // 4)
    pids = [pid(each) for each in service.pool.working.values()]
    (folder,) = {path.parent for path in (tmp_path / "state").rglob("shard-0.sqlite")}
    largest = max(path.stat().st_size for path in folder.iterdir())
    for each in pids:  # no file of theirs may grow: a write fails like one on a full disk
        resource.prlimit(each, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
    stuck = sum(outbox.counts.retries for outbox in senders.outboxes)
    until(lambda: sum(outbox.counts.retries for outbox in senders.outboxes) > stuck + 5)
    for each in pids:
        resource.prlimit(each, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    senders.join()
    assert [pid(each) for each in service.pool.working.values()] == pids, "nobody had to restart"
    assert sum(outbox.counts.refused + outbox.counts.dropped for outbox in senders.outboxes) == 0
    assert_exact(service, tmp_path / "release.parquet")


def test_parts_that_hang_for_a_while_lose_nothing(service: Topology, tmp_path: Path) -> None:
    records = one_bin_each(service.task, CLASSES)
    senders = Senders(service, records)
    parts = [service.pool.working["shard-0"], service.matcher, service.directory, service.gateway]
    pids = [pid(each) for each in parts]
    for place, each in enumerate(pids, 1):
        until(lambda: senders.sent() >= place * len(records) // 6)  # noqa: B023 - used at once
        os.kill(each, signal.SIGSTOP)
        time.sleep(1.0)  # the time that it hangs
        os.kill(each, signal.SIGCONT)
    senders.join()
    assert [pid(each) for each in parts] == pids
    assert_exact(service, tmp_path / "release.parquet")
