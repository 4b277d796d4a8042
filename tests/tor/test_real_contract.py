"""The contract of all uploaders over the real Tor."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from transport.contract import UploaderContract, Way
from transport.servers import http_server

from penrose_ray.errors import TorError
from penrose_ray.transport.tor.client import onion_uploader
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.transport.http import HttpUploader
    from penrose_ray.transport.tor.client import OwnTor
    from penrose_ray.transport.tor.service import OnionService

TRIES = 4


class Patient:
    """Tries another circuit where tor has none, as the outbox does."""

    def __init__(self, uploader: HttpUploader) -> None:
        self._uploader = uploader

    def send(self, record: bytes) -> None:
        for _ in range(TRIES - 1):
            try:
                return self._uploader.send(record)
            except TorError:
                continue
        return self._uploader.send(record)


@pytest.mark.slow
class TestRealTor(UploaderContract):
    @pytest.fixture
    def way(self, onion: OnionService, own_tor: OwnTor, gateway_port: int) -> Iterator[Way]:
        with ExitStack() as stack:
            told = stack.enter_context(http_server(port=gateway_port))
            uploader = onion_uploader(onion.addresses[0], TaskId(bytes(32)), own_tor, timeout_s=20)
            yield Way(Patient(uploader), told, stack.close)
