"""A gateway's address decides the way."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from transport.held import HeldUploader
from transport.servers import ONION, certificate, http_server

from penrose_ray.clock import ManualClock
from penrose_ray.errors import ConfigError, TorError
from penrose_ray.transport.background import BackgroundOutbox
from penrose_ray.transport.route import route_to
from penrose_ray.transport.tls import gateway_context, pin_of
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from pathlib import Path

TASK = TaskId(bytes(range(32)))
RECORD = secrets.token_bytes(4096)


def test_http_goes_plainly(tmp_path: Path) -> None:
    with http_server() as told:
        route = route_to([f"http://127.0.0.1:{told.port}"], TASK, tmp_path)
        route.ways[0].uploader.send(RECORD)
        route.close()
    assert not route.anonymous
    assert told.bodies == [RECORD]


def test_https_takes_pins_and_certificate_from_the_client_s_directory(tmp_path: Path) -> None:
    gateway, client = certificate(tmp_path, "gateway"), certificate(tmp_path / "tls", "client")
    (tmp_path / "tls" / "pins").write_text(f"{'00' * 32}\n{pin_of(gateway[0].read_bytes()).hex()}\n")
    with http_server(gateway_context(*gateway, client[0])) as told:
        route = route_to([f"https://127.0.0.1:{told.port}"], TASK, tmp_path)
        route.ways[0].uploader.send(RECORD)
    assert not route.anonymous
    assert told.bodies == [RECORD]


def test_https_without_pins_says_which_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="pins"):
        route_to(["https://127.0.0.1:1"], TASK, tmp_path)


def test_an_onion_address_goes_over_tor_and_nowhere_else(tmp_path: Path) -> None:
    route = route_to([f"http://{ONION}"], TASK, tmp_path, socks="127.0.0.1:1")
    assert route.anonymous
    with pytest.raises(TorError, match="SOCKS port cannot be reached"):
        route.ways[0].uploader.send(RECORD)


def test_an_onion_address_without_tor_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TorError, match="apt-get install tor"):
        route_to([f"http://{ONION}"], TASK, tmp_path)


@pytest.mark.parametrize("socks", ["9050", "localhost:", "localhost:tor"])
def test_what_is_no_socks_port_is_refused(tmp_path: Path, socks: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        route_to([f"http://{ONION}"], TASK, tmp_path, socks=socks)


def test_several_onion_addresses_share_one_tor(tmp_path: Path) -> None:
    route = route_to([f"http://{ONION}"] * 3, TASK, tmp_path, socks="127.0.0.1:1")
    assert (len(route.ways), route.anonymous) == (3, True)


def test_addresses_of_two_kinds_or_none_are_refused(tmp_path: Path) -> None:
    for gateways in ([], [f"http://{ONION}", "http://127.0.0.1:1"]):
        with pytest.raises(ConfigError, match="one kind of address"):
            route_to(gateways, TASK, tmp_path, socks="127.0.0.1:1")


def test_a_misspelt_onion_address_is_not_tried_plainly(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="onion"):
        route_to([f"http://{ONION.replace('a', 'b', 1)}"], TASK, tmp_path, socks="127.0.0.1:9050")


def test_an_ended_outbox_begins_nothing_new() -> None:
    uploader = HeldUploader()
    outbox = BackgroundOutbox(uploader, ManualClock())
    for record in (b"1", b"2"):
        outbox.put(record)
    assert uploader.started.wait(120)
    outbox.end()
    uploader.release.set()
    outbox.close()
    assert (uploader.taken, len(outbox)) == ([b"1"], 1)
