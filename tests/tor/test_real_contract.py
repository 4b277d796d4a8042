"""The contract of all uploaders over the real Tor."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tor.waiting import MOST_S, POLL_S
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


class Patient:
    """Tries another circuit while tor has none, as the outbox does."""

    def __init__(self, uploader: HttpUploader) -> None:
        self._uploader = uploader
        self.most_s = MOST_S

    def send(self, record: bytes) -> None:
        waiting, deadline = threading.Event(), time.monotonic() + self.most_s
        while True:
            try:
                return self._uploader.send(record)
            except TorError:
                if time.monotonic() >= deadline:
                    raise
                waiting.wait(POLL_S)


@pytest.mark.slow
class TestRealTor(UploaderContract):
    @pytest.fixture
    def way(self, onion: OnionService, own_tor: OwnTor, gateway_port: int) -> Iterator[Way]:
        with ExitStack() as stack:
            told = stack.enter_context(http_server(port=gateway_port))
            patient = Patient(onion_uploader(onion.addresses[0], TaskId(bytes(32)), own_tor, timeout_s=120))

            def cut() -> None:
                patient.most_s = 0
                stack.close()

            yield Way(patient, told, cut)
