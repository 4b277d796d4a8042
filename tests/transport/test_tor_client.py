"""The client's side of Tor without a network: addresses, SOCKS, options, a program that is missing."""

from __future__ import annotations

import base64
import re
import shutil
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from transport.servers import ONION, fake_tor, http_server

from penrose_ray.errors import ConfigError, TorError
from penrose_ray.transport.tor.address import check_onion, onion_host
from penrose_ray.transport.tor.client import OwnTor, onion_uploader
from penrose_ray.transport.tor.options import (
    CLIENT_OPTIONS,
    SERVICE_OPTIONS,
    SOCKS_FLAGS,
    Profile,
    client_lines,
    service_lines,
)
from penrose_ray.transport.tor.process import TorProcess, tor_binary
from penrose_ray.transport.tor.service import AuthorisationKey
from penrose_ray.transport.tor.socks import SocksDial, SocksPort
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transport.servers import FakeTor

TASK = TaskId(bytes(range(32)))
RECORD = bytes(4096)
PAGE = Path(__file__).parents[2] / "docs" / "tor.md"


@pytest.fixture
def tor(tmp_path: Path) -> Iterator[FakeTor]:
    with http_server() as told, fake_tor(tmp_path / "socks", told.port) as tor:
        yield tor


def send(tor: FakeTor, record: bytes = RECORD) -> None:
    onion_uploader(ONION, TASK, SocksDial(SocksPort(tor.path)), timeout_s=10).send(record)


def test_every_upload_has_a_circuit_of_its_own(tor: FakeTor) -> None:
    for _ in range(20):
        send(tor)
    assert len(set(tor.names)) == 20
    assert all(re.fullmatch(rb"[0-9a-f]{32}", name) for name in tor.names)


def test_the_name_of_the_service_is_resolved_by_tor(tor: FakeTor) -> None:
    send(tor)
    assert tor.hosts == [ONION.encode()]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0xF0, "descriptor is not published"),
        (0xF4, "client authorisation"),
        (0xF5, "key is wrong"),
        (0x05, "refused the connection"),
        (0x06, "circuit ended"),
        (0x77, "code 0x77"),
    ],
)
def test_tor_s_reasons_become_words(tor: FakeTor, code: int, words: str) -> None:
    tor.refusal = code
    with pytest.raises(TorError, match=words) as caught:
        send(tor)
    assert caught.value.remedy


def test_a_port_that_does_not_keep_circuits_apart_is_not_used(tor: FakeTor) -> None:
    tor.method = 0
    with pytest.raises(TorError, match="keep circuits apart"):
        send(tor)
    tor.method, tor.login = 2, 1
    with pytest.raises(TorError, match="refused the user name"):
        send(tor)


def test_a_port_where_nobody_listens_or_nobody_answers(tmp_path: Path) -> None:
    dial = SocksDial(SocksPort(tmp_path / "nobody"))
    with pytest.raises(TorError, match="cannot be reached"):
        dial.connect(ONION, 80, 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dial = SocksDial(SocksPort(silent.getsockname()[:2]))
        with pytest.raises(TorError, match=r"within 0\.05 s"):
            dial.connect(ONION, 80, 0.05)


@pytest.mark.parametrize(
    "host",
    ["gateway.example", "127.0.0.1", "expyuzz4wqqyqhjn.onion", f"www.{ONION}", ONION[:-6], ".onion", ""],
)
def test_only_onion_services_are_dialled(tor: FakeTor, host: str) -> None:
    with pytest.raises(ConfigError, match="onion"):
        SocksDial(SocksPort(tor.path)).connect(host, 80, 1)
    with pytest.raises(ConfigError, match="onion"):
        onion_uploader(host, TASK, SocksDial(SocksPort(tor.path)))
    assert tor.names == []


@given(key=st.binary(min_size=32, max_size=32), position=st.integers(0, 54), letter=st.sampled_from("abc234"))
@hypothesis_settings(deadline=None, derandomize=True)  # one in 65,536 misspelt addresses is another one
def test_a_misspelt_address_is_noticed(key: bytes, position: int, letter: str) -> None:
    host = onion_host(key)
    assert check_onion(host.upper()) == host
    misspelt = host[:position] + letter + host[position + 1 :]
    if misspelt != host:
        with pytest.raises(ConfigError, match="misspelt"):
            check_onion(misspelt)


def test_a_known_address_has_a_valid_checksum() -> None:
    published = "2gzyxa5ihm7nsggfxnu52rck2vv4rvmdlkiu3zzui5du4xyclen53wid.onion"  # the Tor Project's own site
    assert check_onion(published) == published


def test_the_recommended_options_keep_a_client_like_all_others() -> None:
    text = "\n".join(client_lines(Path("/run/tor/socks")))
    for name in ("NumEntryGuards", "CircuitBuildTimeout", "Padding", "Vanguards"):
        assert name not in text
    assert f"SocksPort unix:/run/tor/socks {SOCKS_FLAGS}" in text
    assert {"IsolateSOCKSAuth", "OnionTrafficOnly"} < set(SOCKS_FLAGS.split())
    assert "KeepAlive" not in text


def test_the_paper_s_options_are_there_for_comparison() -> None:
    lines = client_lines("127.0.0.1:9050", Profile.PAPER)
    assert {
        "CircuitBuildTimeout 5",
        "LearnCircuitBuildTimeout 0",
        "MaxCircuitDirtiness 600",
        "NumEntryGuards 3",
    } < set(lines)


def test_a_service_asks_for_work_only_where_its_tor_can() -> None:
    with_pow = service_lines(Path("/s"), 8080, has_pow=True)
    without = service_lines(Path("/s"), 8080, has_pow=False)
    assert "HiddenServicePort 80 127.0.0.1:8080" in without
    assert {line.split()[0] for line in with_pow} - {line.split()[0] for line in without} == {
        "HiddenServicePoWDefensesEnabled",
        "HiddenServicePoWQueueRate",
        "HiddenServicePoWQueueBurst",
    }


def test_the_page_explains_every_option() -> None:
    page = PAGE.read_text()
    for option in (*CLIENT_OPTIONS, *SERVICE_OPTIONS):
        (row,) = re.findall(rf"^\| `{option.name}` \|.*$", page, re.MULTILINE)
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1] == (option.ours or "default"), row
        assert cells[3] == (option.paper or "-"), row
        assert len(cells[4]) > 10, row
    for flag in SOCKS_FLAGS.split():
        assert f"`{flag}`" in page


def test_without_tor_the_message_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TorError, match="apt-get install tor") as caught:
        OwnTor(tmp_path / "tor")
    assert "SOCKS port" in caught.value.remedy


def test_without_stem_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(TorError, match=r"penrose-ray\[tor\]"):
        tor_binary()


def program(tmp_path: Path, text: str) -> str:
    """A program that stands in for tor at its start; only its end is looked at."""
    path = tmp_path / "bad-tor"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def test_a_tor_that_ends_at_once_is_quoted(tmp_path: Path) -> None:
    tor = TorProcess(tmp_path / "t", [], binary=program(tmp_path, "echo Unknown option 'Nonsense'; exit 1"))
    with pytest.raises(TorError, match="Unknown option"):
        tor.start(10)
    assert tor.pid is None


def test_a_tor_that_opens_no_control_socket_is_ended_in_time(tmp_path: Path) -> None:
    tor = TorProcess(tmp_path / "t", [], binary=program(tmp_path, "exec sleep 60"))
    with pytest.raises(TorError, match="no control socket"):
        tor.start(0.2)
    assert tor.pid is None


def test_a_path_that_is_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="too long"):
        TorProcess(tmp_path / ("x" * 120), [], binary=program(tmp_path, "exit 0"))


def test_an_authorisation_key_is_written_as_tor_reads_it() -> None:
    key = AuthorisationKey.generate()
    address, kind, algorithm, private = key.client_line(ONION).strip().split(":")
    assert (f"{address}.onion", kind, algorithm) == (ONION, "descriptor", "x25519")
    assert len(base64.b32decode(private + "====")) == len(base64.b32decode(key.public + "====")) == 32
