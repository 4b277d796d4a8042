"""Every kind of actor is killed in turn under load; afterwards every report is in the sum once."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from chaos.senders import Senders
from e2e.reports import one_bin_each, opened_bins
from e2e.service_config import settings_in
from waiting import until

from penrose_ray.actors.remote import ask
from penrose_ray.actors.topology import build

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
CLASSES = 4


@pytest.fixture
def service(tmp_path: Path, design_keys: DesignKeys) -> Iterator[Topology]:
    with build(*settings_in(tmp_path, design_keys)) as topology:
        yield topology


def test_sums_are_exact_whichever_actor_is_killed_under_load(service: Topology, tmp_path: Path) -> None:
    records = one_bin_each(service.task, CLASSES)
    victims = {
        "shard-0": service.pool.working["shard-0"],
        "matcher": service.matcher,
        "directory": service.directory,
        **service.gateways.handles,
        "shard-1": service.pool.working["shard-1"],
    }
    pids = {name: ask(handle.pid.remote()) for name, handle in victims.items()}
    senders = Senders(service, [])
    for share, pid in enumerate(pids.values()):
        before = senders.sent()
        senders.add(records[share :: len(pids)])
        until(lambda sent=before: senders.sent() > sent)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not any(len(outbox) for outbox in senders.outboxes), service.tend)
    senders.join()

    assert senders.sent() == len(records)
    assert sum(outbox.counts.retries for outbox in senders.outboxes) > 0, "nobody noticed the kills"
    assert sum(outbox.counts.refused + outbox.counts.dropped for outbox in senders.outboxes) == 0
    handovers = [service.release(batch) for batch in service.batches()]
    service.open(handovers, tmp_path / "release.parquet")
    bins = opened_bins(tmp_path / "release.parquet")
    assert len(bins) == CLASSES
    assert all(counts == [1] * 128 for counts in bins.values())


def test_the_other_gateway_takes_all_reports_while_one_is_gone(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    with build(*settings_in(tmp_path, design_keys, "service.gateways=2")) as service:
        records = one_bin_each(service.task, CLASSES)
        both = [Senders(service, []), Senders(service, [])]  # the same reports, at the same time
        for number, victim in enumerate(service.gateways.handles.values()):
            before = sum(each.sent() for each in both)
            for each in both:
                each.add(records[2 * number :: 4])
            until(lambda sent=before: sum(each.sent() for each in both) > sent)
            os.kill(ask(victim.pid.remote()), signal.SIGKILL)
            for each in both:
                each.add(records[2 * number + 1 :: 4])
            until(lambda: not any(len(outbox) for each in both for outbox in each.outboxes))  # nobody tends
            until(lambda: all(each["listens"] for each in service.gateways.state()), service.tend)
        for each in both:
            each.join()

        assert [each.sent() for each in both] == [len(records)] * 2
        outboxes = [outbox for each in both for outbox in each.outboxes]
        assert sum(outbox.counts.refused + outbox.counts.dropped for outbox in outboxes) == 0
        handovers = [service.release(batch) for batch in service.batches()]
        service.open(handovers, tmp_path / "release.parquet")
        bins = opened_bins(tmp_path / "release.parquet")
        assert len(bins) == CLASSES
        assert all(counts == [1] * 128 for counts in bins.values())


def test_shards_are_added_and_drained_while_reports_arrive(tmp_path: Path, design_keys: DesignKeys) -> None:
    with build(*settings_in(tmp_path, design_keys, "service.most_shards=4")) as service:
        records = one_bin_each(service.task, CLASSES)
        senders = Senders(service, records)
        until(lambda: senders.sent() >= len(records) // 4)
        service.pool.grow(2)
        until(lambda: len(service.pool.working) == 4, service.pool.load)
        until(lambda: senders.sent() >= len(records) // 2)
        service.pool.shrink()
        service.pool.shrink()
        senders.join()

        assert sorted(service.pool.working) == ["shard-0", "shard-1"]
        handovers = [service.release(batch) for batch in service.batches()]
        service.open(handovers, tmp_path / "release.parquet")
        bins = opened_bins(tmp_path / "release.parquet")
        assert len(bins) == CLASSES
        assert all(counts == [1] * 128 for counts in bins.values())
