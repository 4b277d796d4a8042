"""Two gateways at one address: a report counts once, a page has both, one that is killed harms nobody."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from e2e.reports import one_bin_each
from e2e.service_config import settings_in
from prometheus_client.parser import text_string_to_metric_families
from waiting import until

from penrose_ray.actors.remote import ask
from penrose_ray.actors.topology import build
from penrose_ray.transport.http import HttpUploader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

NAMES = ["gateway-0", "gateway-1"]
SENDERS = 16
SOME = 8
"""Reports that are sent many times; the others are new when they come."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> Iterator[Topology]:
    home = tmp_path_factory.mktemp("service")
    with build(*settings_in(home, design_keys, "service.gateways=2")) as topology:
        yield topology


@pytest.fixture
def records(service: Topology) -> list[bytes]:
    return one_bin_each(service.task, 1)[:SOME]


def get(service: Topology, path: str) -> str:
    with urllib.request.urlopen(f"{service.url}{path}", timeout=30) as answer:  # noqa: S310 - the service's own
        return str(answer.read().decode())


def counts(service: Topology, metric: str) -> dict[tuple[str, str], float]:
    """What each gateway has counted, by the metric's last label."""
    return {
        (name, labels[-1]): value
        for name, handle in service.gateways.handles.items()
        for labels, value in ask(handle.counted.remote(), 300).get(metric, {}).items()
    }


def counts_of_page(service: Topology) -> dict[tuple[str, str], float]:
    """Reports that each gateway has judged, by outcome, as one of them tells."""
    return {
        (sample.labels["actor"], sample.labels["outcome"]): sample.value
        for family in text_string_to_metric_families(get(service, "/metrics"))
        for sample in family.samples
        if (sample.name, sample.labels.get("stage")) == ("penrose_reports_total", "gateway")
        and sample.labels["actor"] in NAMES  # this process may have had a gateway of its own
    }


def send_at_once(service: Topology, record: bytes) -> None:
    """Send the same bytes over many connections at the same moment."""
    barrier = Barrier(SENDERS)

    def send() -> None:
        uploader = HttpUploader(service.url, service.task.task_id)
        barrier.wait(60)
        uploader.send(record)

    with ThreadPoolExecutor(SENDERS) as pool:
        for each in [pool.submit(send) for _ in range(SENDERS)]:
            each.result()


def shard_reports(service: Topology) -> int:
    return service.progress().accepted


def test_a_report_that_both_get_at_once_counts_once_and_every_page_has_the_counts_of_both(
    service: Topology, records: Sequence[bytes]
) -> None:
    before, kept = counts(service, "penrose_reports_total"), shard_reports(service)
    for record in records:
        send_at_once(service, record)
    assert shard_reports(service) - kept == len(records)

    after = counts(service, "penrose_reports_total")
    grown = {key: count - before.get(key, 0.0) for key, count in after.items()}
    assert sum(grown.values()) == len(records) * SENDERS
    assert sum(count for (_, outcome), count in grown.items() if outcome == "accepted") >= len(records)
    for each in NAMES:
        assert sum(count for (name, _), count in grown.items() if name == each) > 0
    until(lambda: all(counts_of_page(service) == after for _ in range(12)))  # whichever of them answers


def test_all_are_named_by_ready_and_by_the_status(service: Topology) -> None:
    wanted = {"ready": True, "gateways": NAMES}
    until(lambda: json.loads(get(service, "/ready")) == wanted)  # an answer of before a restart may be kept
    assert service.status()["gateways"] == [
        {"gateway": name, "listens": True, "waiting": 0, "lag_s": 0.0, "fault": ""} for name in NAMES
    ]


def test_all_forget_classes_when_one_is_split(service: Topology) -> None:
    uploader = HttpUploader(service.url, service.task.task_id)
    new = iter(one_bin_each(service.task, 1)[SOME:])

    def misses() -> dict[str, float]:
        found = counts(service, "penrose_class_cache_total")
        return {name: found.get((name, "miss"), 0.0) for name in NAMES}

    def send_until_all_ask_the_matcher() -> None:
        before = misses()
        while any(count == before[name] for name, count in misses().items()):
            uploader.send(next(new))

    service.gateways.forget_classes()
    send_until_all_ask_the_matcher()
    before = misses()
    for _ in range(SENDERS):
        uploader.send(next(new))
    assert misses() == before, "they know its class"
    service.gateways.forget_classes()
    send_until_all_ask_the_matcher()


def kill(service: Topology, names: Sequence[str]) -> None:
    for name in names:
        os.kill(ask(service.gateways.handles[name].pid.remote(), 300), signal.SIGKILL)


def listening(service: Topology) -> list[str]:
    rows: Any = service.status()["gateways"]
    return [each["gateway"] for each in rows if each["listens"]]


def test_the_other_one_answers_while_one_is_gone_and_it_comes_back(service: Topology) -> None:
    kill(service, NAMES[:1])

    def told() -> bool:
        with contextlib.suppress(OSError):  # the one that ends may have been dealt the connection
            return bool(json.loads(get(service, "/ready"))["gateways"] == listening(service) == NAMES[1:])
        return False

    until(told)
    for _ in range(20):
        assert json.loads(get(service, "/ready"))["gateways"] == NAMES[1:]
    until(lambda: listening(service) == NAMES, service.tend)
    assert service.gateways.port == urlsplit(service.url).port
    until(lambda: json.loads(get(service, "/ready"))["gateways"] == NAMES)


def test_a_port_that_was_taken_meanwhile_is_told_and_tried_again(
    service: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    kill(service, NAMES)
    foreign = socket.socket()
    with contextlib.closing(foreign):
        foreign.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def taken() -> bool:
            with contextlib.suppress(OSError):  # until they are gone
                foreign.bind(("127.0.0.1", service.gateways.port))
                return True
            return False

        until(taken)
        foreign.listen()

        def faults() -> list[str]:
            service.tend()
            rows: Any = service.status()["gateways"]
            return [each["fault"] for each in rows]

        with caplog.at_level(logging.WARNING, "penrose_ray.service"):
            until(lambda: all("Nothing can listen" in each for each in faults()))
            faults()
        told = [each.getMessage() for each in caplog.records if "Nothing can listen" in each.getMessage()]
        assert len(told) == 2, "each once, however often it is tried"
        assert listening(service) == []
    until(lambda: faults() == ["", ""])
    assert listening(service) == NAMES
