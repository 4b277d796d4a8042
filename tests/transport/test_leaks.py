"""What an upload must not give away: length, content, names asked, connections made, logs written."""

from __future__ import annotations

import logging
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from transport.servers import ONION, fake_tor, http_server

from penrose_ray.transport.tor.client import onion_uploader
from penrose_ray.transport.tor.socks import SocksDial, SocksPort
from penrose_ray.types import ReportId, TaskId
from penrose_ray.wire import RECORD_BYTES, Report, encode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transport.servers import FakeTor

    from penrose_ray.transport.http import HttpUploader

TASK = TaskId(bytes(range(32)))
MOST_BYTES_ON_THE_WIRE = 4600
REPORTS = st.builds(
    Report,
    task_id=st.just(TASK),
    report_id=st.binary(min_size=32, max_size=32).map(ReportId),
    created_hour=st.integers(0, 10**6),
    gpu_model=st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=16),
    scheme=st.sampled_from(["g8-recurring-v1", "g8-mended-v1"]),
    signature=st.binary(min_size=400, max_size=400),
    counter_set=st.integers(0, 63),
    blob=st.binary(min_size=1536, max_size=1536),
)

_EVENTS = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}
_watching: list[list[tuple[str, object]]] = []


def _watch(event: str, arguments: tuple[object, ...]) -> None:
    if _watching and event in _EVENTS and threading.current_thread() is threading.main_thread():
        _watching[-1].append((event, arguments[1] if event == "socket.connect" else arguments[0]))


sys.addaudithook(_watch)


@contextmanager
def network_calls() -> Iterator[list[tuple[str, object]]]:
    """Names that this thread asks for and addresses that it connects to, whatever library does it."""
    seen: list[tuple[str, object]] = []
    _watching.append(seen)
    yield seen
    _watching.pop()


@pytest.fixture(scope="module")
def tor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeTor]:
    with (
        http_server() as told,
        fake_tor(tmp_path_factory.mktemp("tor") / "socks", told.port) as tor,
    ):
        yield tor


@pytest.fixture(scope="module")
def uploader(tor: FakeTor) -> HttpUploader:
    return onion_uploader(ONION, TASK, SocksDial(SocksPort(tor.path)), timeout_s=10)


@given(first=REPORTS, second=REPORTS)
@hypothesis_settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_every_upload_has_the_same_length_and_head(
    tor: FakeTor, uploader: HttpUploader, first: Report, second: Report
) -> None:
    with http_server() as told:
        tor.port = told.port
        for report in (first, second):
            uploader.send(encode(report))
    one, other = tor.sent.get(timeout=30), tor.sent.get(timeout=30)
    assert len(one) == len(other) <= MOST_BYTES_ON_THE_WIRE
    assert one[:-RECORD_BYTES] == other[:-RECORD_BYTES]


def test_the_head_says_nothing_about_the_client(tor: FakeTor, uploader: HttpUploader) -> None:
    with http_server() as told:
        tor.port = told.port
        uploader.send(bytes(RECORD_BYTES))
    assert told.heads == [
        {
            "Host": ONION,
            "Accept-Encoding": "identity",
            "Content-Length": "4096",
            "Content-Type": "application/octet-stream",
        }
    ]


def test_no_name_is_asked_and_no_connection_made_but_to_tor(tor: FakeTor, uploader: HttpUploader) -> None:
    with http_server() as told:
        tor.port = told.port
        with network_calls() as seen:
            uploader.send(bytes(RECORD_BYTES))
    assert seen == [("socket.connect", str(tor.path))]


def test_the_watch_would_notice() -> None:
    import socket  # noqa: PLC0415 - the leak that is made on purpose

    with http_server() as told, network_calls() as seen:
        socket.create_connection(("localhost", told.port)).close()
    assert seen[0][0] == "socket.getaddrinfo"
    assert seen[-1][0] == "socket.connect"


def test_logs_hold_no_address_and_no_class(
    tor: FakeTor, uploader: HttpUploader, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    signature = b"signature!" * 40
    report = Report(TASK, ReportId(bytes(32)), 1, "Test GPU", "g8-mended-v1", signature, 0, bytes(1536))
    caplog.set_level(logging.DEBUG)
    with http_server() as told:
        tor.port = told.port
        uploader.send(encode(report))
    written = caplog.text + "".join(capfd.readouterr())
    for secret in (ONION, ONION[:-6], "127.0.0.1", "signature!", signature.hex(), "Test GPU"):
        assert secret not in written
