"""The real gateway's second port: TLS 1.3 for known clients, the same reports."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from ports import held_ports
from tor.collection import Collection
from transport.servers import certificate

from penrose_ray.actors.gateway import Gateway
from penrose_ray.actors.serving import Sharing
from penrose_ray.errors import ConfigError, TransportError
from penrose_ray.settings import TlsSettings
from penrose_ray.transport import tls as tls_module
from penrose_ray.transport.http import HttpUploader, fetch_task
from penrose_ray.transport.tls import TlsDial, pin_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[TlsSettings]:
    gateway, client = certificate(tmp_path, "gateway"), certificate(tmp_path, "client")
    with held_ports(1) as (port,):
        yield TlsSettings(
            host="127.0.0.1", port=port, certificate=gateway[0], key=gateway[1], clients=client[0]
        )


@pytest.fixture
def collection(
    tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys, tls: TlsSettings
) -> Iterator[Collection]:
    collection = Collection(tmp_path, make_task, design_keys, tls=tls)
    yield collection
    collection.close()


def test_known_clients_report_over_tls_and_strangers_do_not(
    collection: Collection, tls: TlsSettings, tmp_path: Path
) -> None:
    url, task_id = f"https://127.0.0.1:{tls.port}", collection.task.task_id
    pin = pin_of(tls.certificate.read_bytes())
    known = TlsDial([pin], tmp_path / "client.pem", tmp_path / "client.key")
    stranger = TlsDial([pin], *certificate(tmp_path, "stranger"))
    record = collection.seal(0)

    for _ in range(2):
        HttpUploader(url, task_id, dial=known).send(record)
    with pytest.raises(TransportError):
        HttpUploader(url, task_id, dial=stranger, timeout_s=10).send(collection.seal(1))

    assert collection.reports == 1
    assert fetch_task(url, task_id, dial=known) == fetch_task(f"http://127.0.0.1:{collection.port}", task_id)


def test_two_gateways_share_the_second_port_too(
    collection: Collection, tls: TlsSettings, tmp_path: Path
) -> None:
    known = TlsDial([pin_of(tls.certificate.read_bytes())], tmp_path / "client.pem", tmp_path / "client.key")

    async def run(port: int) -> bytes:
        shared = tls.model_copy(update={"port": port})
        first, second = (Gateway(collection._gateway._intake, shared) for _ in range(2))
        plain = await first.start("127.0.0.1", 0, Sharing.FIRST)
        await second.start("127.0.0.1", plain, Sharing.JOINING)
        await first.stop()
        url = f"https://127.0.0.1:{port}"
        found = await asyncio.to_thread(fetch_task, url, collection.task.task_id, dial=known)
        await second.stop()
        return found

    with held_ports(1) as (port,):
        assert asyncio.run(run(port)) == collection._gateway._intake.signed_task


def test_a_certificate_that_cannot_be_read_is_a_transport_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Connection:
        closed = False

        def getpeercert(self, *, binary_form: bool) -> bytes:
            return b"\x30\x00" if binary_form else b""

        def close(self) -> None:
            self.closed = True

    connection = Connection()
    monkeypatch.setattr(tls_module, "_handshake", lambda *_: connection)
    dial = TlsDial([b"\x00" * 32], *certificate(tmp_path, "client"))
    with pytest.raises(TransportError, match="cannot be read"):
        dial.connect("gateway", 443, 1.0)
    assert connection.closed


def test_certificates_that_are_none_end_the_start(
    collection: Collection, tls: TlsSettings, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("hello")
    wrong = tls.model_copy(update={"certificate": tmp_path / "text"})
    with pytest.raises(ConfigError, match="no certificate"):
        asyncio.run(Gateway(collection._gateway._intake, wrong).start("127.0.0.1", 0))
