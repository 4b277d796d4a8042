"""Uploads over a real private Tor network to a real gateway, through every kind of trouble."""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from collections import Counter
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from ports import held_ports
from tor.collection import counts_of
from tor.waiting import empty

from penrose_ray.clock import ManualClock
from penrose_ray.errors import TorError
from penrose_ray.transport.http import fetch_task
from penrose_ray.transport.outbox import Outbox
from penrose_ray.transport.spool import Spool
from penrose_ray.transport.tor.address import onion_host
from penrose_ray.transport.tor.client import OwnTor, onion_uploader
from penrose_ray.transport.tor.service import AuthorisationKey, OnionService
from penrose_ray.transport.tor.socks import NoWayError, SocksDial, SocksPort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tor.collection import Collection
    from tor.network import TorNetwork

pytestmark = pytest.mark.slow

UPLOAD_TIMEOUT_S = 20.0


def deliver(
    collection: Collection,
    onion: OnionService,
    own_tor: OwnTor,
    spool: Spool,
    reports: int,
    *,
    trouble: Callable[[int], object] = lambda _: None,
) -> Outbox:
    """Send reports 0, 1, ... through a spool; `trouble` is called before each one."""
    clock = ManualClock()
    uploader = onion_uploader(
        onion.addresses[0], collection.task.task_id, own_tor, timeout_s=UPLOAD_TIMEOUT_S
    )
    outbox = Outbox(uploader, clock, queue=spool)
    for number in range(reports):
        outbox.put(collection.seal(number))
        trouble(number)
        empty(outbox, clock)
    assert not outbox.counts.refused, outbox.last_error
    return outbox


def assert_exact(collection: Collection, reports: int) -> None:
    assert collection.reports == reports
    np.testing.assert_array_equal(collection.opened(), sum(counts_of(number) for number in range(reports)))


@pytest.fixture
def spool(tmp_path: Path) -> Iterator[Spool]:
    with Spool(tmp_path / "spool", bytes(32)) as spool:
        yield spool


@contextmanager
def circuits_of_streams(own_tor: OwnTor) -> Iterator[Counter[str]]:
    """How many streams each circuit has carried, as tor's control port tells."""
    from stem.control import EventType  # noqa: PLC0415 - an optional package

    seen: Counter[str] = Counter()

    def heard(event: object) -> None:
        if event.status == "SUCCEEDED" and event.target_address.endswith(".onion"):  # type: ignore[attr-defined]
            seen[event.circ_id] += 1  # type: ignore[attr-defined]

    controller = own_tor.process.controller
    controller.add_event_listener(heard, EventType.STREAM)
    yield seen
    controller.remove_event_listener(heard)


def test_50_uploads_take_50_circuits_and_their_sum_is_exact(
    collection: Collection, onion: OnionService, own_tor: OwnTor, spool: Spool
) -> None:
    own_tor.start()
    with circuits_of_streams(own_tor) as circuits:
        outbox = deliver(collection, onion, own_tor, spool, 50)

    assert len(circuits) == sum(circuits.values()) >= 50, "no circuit carried two uploads"
    assert len(circuits) <= 50 + outbox.counts.retries
    assert outbox.counts.sent == 50
    assert_exact(collection, 50)


def test_the_service_restarts_in_the_middle(
    collection: Collection, onion: OnionService, own_tor: OwnTor, spool: Spool
) -> None:

    def trouble(number: int) -> None:
        if number == 5:
            collection.stop()
        if number == 6:
            collection.start()

    clock = ManualClock()
    uploader = onion_uploader(
        onion.addresses[0], collection.task.task_id, own_tor, timeout_s=UPLOAD_TIMEOUT_S
    )
    outbox = Outbox(uploader, clock, queue=spool)
    for number in range(12):
        trouble(number)
        outbox.put(collection.seal(number))
        outbox.flush()
        clock.advance(60.0)
    empty(outbox, clock)

    assert outbox.counts.retries >= 1
    assert (outbox.counts.sent, outbox.counts.dropped) == (12, 0)
    assert_exact(collection, 12)


def test_a_relay_dies_in_the_middle(
    collection: Collection, onion: OnionService, own_tor: OwnTor, spool: Spool, network: TorNetwork
) -> None:
    victim = network.middles[0]

    def trouble(number: int) -> None:
        if number == 4:
            victim.kill()

    try:
        outbox = deliver(collection, onion, own_tor, spool, 12, trouble=trouble)
    finally:
        victim.restart()

    assert outbox.counts.sent == 12
    assert_exact(collection, 12)


def guards(own_tor: OwnTor) -> set[str]:
    state = (own_tor.process.home / "data" / "state").read_text()
    lines = [line for line in state.splitlines() if line.startswith("Guard ")]
    return {part for line in lines for part in line.split() if part.startswith("rsa_id=")}


def test_the_client_s_tor_is_killed_comes_back_and_keeps_its_guards(
    collection: Collection, onion: OnionService, own_tor: OwnTor, spool: Spool
) -> None:
    own_tor.start()
    first = own_tor.process.pid
    assert first is not None
    before = guards(own_tor)

    def trouble(number: int) -> None:
        if number == 3:
            os.kill(first, signal.SIGKILL)

    outbox = deliver(collection, onion, own_tor, spool, 6, trouble=trouble)

    assert own_tor.process.pid not in (None, first)
    assert before <= guards(own_tor)
    assert outbox.counts.sent == 6
    assert_exact(collection, 6)


def test_after_no_answer_tor_looks_for_another_way(onion: OnionService, own_tor: OwnTor) -> None:
    from stem.control import EventType  # noqa: PLC0415 - an optional package

    own_tor.start()
    heard: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listener(event: object) -> None:
        heard.put(event.signal)  # type: ignore[attr-defined]

    own_tor.process.controller.add_event_listener(listener, EventType.SIGNAL)
    try:
        with pytest.raises(NoWayError, match=r"within 0\.01 s"):
            own_tor.connect(onion.addresses[0], 80, 0.01)
        assert heard.get(timeout=60) == "NEWNYM", "descriptors and half-built circuits are forgotten"
    finally:
        own_tor.process.controller.remove_event_listener(listener)


def test_a_wrong_onion_address_reaches_nobody_and_the_report_waits(
    collection: Collection, own_tor: OwnTor
) -> None:
    stranger = onion_host(Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    outbox = Outbox(
        onion_uploader(stranger, collection.task.task_id, own_tor, timeout_s=UPLOAD_TIMEOUT_S), ManualClock()
    )
    outbox.put(collection.seal(0))

    assert not outbox.flush()
    assert isinstance(outbox.last_error, TorError)
    assert "descriptor is not published" in outbox.last_error.message
    assert (len(outbox), collection.reports) == (1, 0)


def test_tor_itself_refuses_what_is_no_onion_service(own_tor: OwnTor, collection: Collection) -> None:
    own_tor.start()
    for request in (
        b"\x05\x01\x00\x01\x7f\x00\x00\x01",  # an address
        b"\x05\x01\x00\x03\x09localhost",
        b"\x05\xf0\x00\x03\x0bexample.org",  # a question of names
    ):
        with SocksPort(own_tor.process.home / "socks").open(10) as connection:
            connection.sendall(b"\x05\x01\x00")
            connection.recv(2)
            connection.sendall(request + collection.port.to_bytes(2, "big"))
            assert connection.recv(10)[1:2] != b"\x00"


def test_a_tor_that_runs_already_is_used_through_its_port(
    collection: Collection, onion: OnionService, network: TorNetwork, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with ExitStack() as stack:
        (port,) = stack.enter_context(held_ports(1))
        lines = [*network.lines(), f"SocksPort 127.0.0.1:{port}"]
        home = tmp_path_factory.mktemp("o")
        stack.enter_context(OwnTor(home, lines=lines, start_timeout_s=300)).start()
        dial = SocksDial(SocksPort(("127.0.0.1", port)))
        raw = fetch_task(
            f"http://{onion.addresses[0]}", collection.task.task_id, dial=dial, timeout_s=UPLOAD_TIMEOUT_S
        )
    assert raw


def test_services_keep_their_addresses_and_let_only_authorised_clients_in(
    collection: Collection, network: TorNetwork, tmp_path_factory: pytest.TempPathFactory
) -> None:
    key = AuthorisationKey.generate()
    service = OnionService(
        tmp_path_factory.mktemp("p"),
        instances=2,
        authorised={"fleet": key.public},
        lines=network.lines(),
        start_timeout_s=300,
    )
    with service:
        service.start(collection.port)
        addresses = service.addresses
    with service, OwnTor(tmp_path_factory.mktemp("c"), lines=network.lines(), start_timeout_s=300) as tor:
        service.start(collection.port)
        assert service.addresses == addresses
        assert len(set(addresses)) == 2
        secret = service.process.home / "service-0" / "hs_ed25519_secret_key"
        assert secret.stat().st_mode & 0o777 == 0o600
        tor.start()
        uploader = onion_uploader(addresses[0], collection.task.task_id, tor, timeout_s=UPLOAD_TIMEOUT_S)
        with pytest.raises(TorError, match="client authorisation"):
            uploader.send(collection.seal(0))
        tor.authorise("service", key.client_line(addresses[0]))
        clock = ManualClock()
        outbox = Outbox(uploader, clock)
        outbox.put(collection.seal(0))
        empty(outbox, clock)
    assert collection.reports == 1


def test_a_network_that_does_not_answer_ends_the_start_with_the_step_it_reached(
    network: TorNetwork, tmp_path_factory: pytest.TempPathFactory
) -> None:
    threads = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        lines = [
            line.split(" orport")[0] + f" orport={port} no-v2 v3ident={'A' * 40} 127.0.0.1:{port} {'B' * 40}"
            if line.startswith("DirAuthority")
            else line
            for line in network.lines()[:-2]
        ]
        tor = OwnTor(tmp_path_factory.mktemp("b"), lines=lines, start_timeout_s=4)
        with pytest.raises(TorError, match=r"stands at \d+ % \([^)]+\)") as caught:
            tor.start()
    assert "outgoing TCP" in caught.value.remedy
    assert tor.process.pid is None
    assert threading.active_count() == threads
