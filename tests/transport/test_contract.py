"""One contract over all uploaders. The real Tor runs it too, in tests/tor."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import msgspec
import pytest
from transport.contract import RECORD, UploaderContract, Way
from transport.servers import ONION, Told, certificate, fake_tor, http_server

from penrose_ray.errors import ConfigError, RefusedReportError, TransportError
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.transport.http import HttpUploader, Problem
from penrose_ray.transport.tls import TlsDial, gateway_context, pin_of
from penrose_ray.transport.tor.client import onion_uploader
from penrose_ray.transport.tor.socks import SocksDial, SocksPort
from penrose_ray.transport.uploader import BusyError
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TASK = TaskId(bytes(range(32)))


class TestDirect(UploaderContract):
    @pytest.fixture
    def way(self) -> Way:
        told = Told(0)

        def take(record: bytes) -> None:
            told.seen.append(("", "", {}, record))
            if told.status == 503:
                raise BusyError("Busy.", remedy="Wait.", retry_after_s=float(told.headers["Retry-After"]))
            if told.status == 400:
                problem = msgspec.json.decode(told.body, type=Problem)
                raise RefusedReportError(problem.detail, remedy=problem.remedy)
            if told.status != 200:
                raise TransportError("Down.", remedy="Again.")

        return Way(DirectUploader(take), told, lambda: setattr(told, "status", 500))


class TestHttp(UploaderContract):
    @pytest.fixture
    def way(self) -> Iterator[Way]:
        with ExitStack() as stack:
            told = stack.enter_context(http_server())
            yield Way(HttpUploader(f"http://127.0.0.1:{told.port}", TASK), told, stack.close)


class TestTor(UploaderContract):
    @pytest.fixture
    def way(self, tmp_path: Path) -> Iterator[Way]:
        with http_server() as told, ExitStack() as stack:
            tor = stack.enter_context(fake_tor(tmp_path / "socks", told.port))
            dial = SocksDial(SocksPort(tor.path))
            yield Way(onion_uploader(ONION, TASK, dial, timeout_s=10), told, stack.close)


class TestTls(UploaderContract):
    @pytest.fixture
    def way(self, tmp_path: Path) -> Iterator[Way]:
        gateway, client = certificate(tmp_path, "gateway"), certificate(tmp_path, "client")
        dial = TlsDial([pin_of(gateway[0].read_bytes())], *client)
        with ExitStack() as stack:
            told = stack.enter_context(http_server(gateway_context(*gateway, client[0])))
            yield Way(HttpUploader(f"https://127.0.0.1:{told.port}", TASK, dial=dial), told, stack.close)


def test_a_gateway_with_another_key_gets_nothing(tmp_path: Path) -> None:
    gateway, client = certificate(tmp_path, "gateway"), certificate(tmp_path, "client")
    dial = TlsDial([bytes(32)], *client)
    with http_server(gateway_context(*gateway, client[0])) as told:
        with pytest.raises(TransportError, match="another key") as caught:
            HttpUploader(f"https://127.0.0.1:{told.port}", TASK, dial=dial).send(RECORD)
        assert pin_of(gateway[0].read_bytes()).hex() in caught.value.message
        assert told.bodies == []


def test_a_key_that_is_being_replaced_has_two_pins(tmp_path: Path) -> None:
    old, new, client = (certificate(tmp_path, name) for name in ("old", "new", "client"))
    dial = TlsDial([pin_of(each[0].read_bytes()) for each in (old, new)], *client)
    for gateway in (old, new):
        with http_server(gateway_context(*gateway, client[0])) as told:
            HttpUploader(f"https://127.0.0.1:{told.port}", TASK, dial=dial).send(RECORD)
            assert told.bodies == [RECORD]


def test_a_client_that_the_gateway_does_not_know_is_not_heard(tmp_path: Path) -> None:
    gateway, client, stranger = (certificate(tmp_path, name) for name in ("gateway", "client", "stranger"))
    dial = TlsDial([pin_of(gateway[0].read_bytes())], *stranger)
    with http_server(gateway_context(*gateway, client[0])) as told:
        with pytest.raises(TransportError):
            HttpUploader(f"https://127.0.0.1:{told.port}", TASK, dial=dial, timeout_s=10).send(RECORD)
        assert told.bodies == []


def test_an_older_tls_is_not_spoken(tmp_path: Path) -> None:
    import ssl  # noqa: PLC0415 - this test alone lowers a version

    gateway, client = certificate(tmp_path, "gateway"), certificate(tmp_path, "client")
    old = gateway_context(*gateway, client[0])
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    dial = TlsDial([pin_of(gateway[0].read_bytes())], *client)
    with http_server(old) as told:
        with pytest.raises(TransportError):
            HttpUploader(f"https://127.0.0.1:{told.port}", TASK, dial=dial, timeout_s=10).send(RECORD)
        assert told.bodies == []


def test_files_that_are_no_certificates_and_pins_that_are_none_are_refused(tmp_path: Path) -> None:
    gateway = certificate(tmp_path, "gateway")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ConfigError, match="no certificate and key"):
        gateway_context(tmp_path / "text", gateway[1], gateway[0])
    with pytest.raises(ConfigError, match="holds no certificates"):
        gateway_context(*gateway, tmp_path / "text")
    with pytest.raises(ConfigError, match="SHA-256"):
        TlsDial([], *gateway)
    with pytest.raises(ConfigError, match="SHA-256"):
        TlsDial([b"short"], *gateway)


def test_plain_and_secured_addresses_are_not_mixed_up(tmp_path: Path) -> None:
    dial = TlsDial([bytes(32)], *certificate(tmp_path, "client"))
    with pytest.raises(ConfigError, match="https://HOST:PORT"):
        HttpUploader("http://127.0.0.1:1", TASK, dial=dial)
