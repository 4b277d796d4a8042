from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from ports import held_ports
from transport.servers import Told, http_server

from penrose_ray.errors import ConfigError, RefusedReportError, TransportError
from penrose_ray.transport.http import HttpUploader, fetch_task
from penrose_ray.transport.uploader import BusyError
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

TASK = TaskId(bytes(range(32)))
RECORD = bytes(range(256)) * 16


@pytest.fixture
def gateway() -> Iterator[Told]:
    with http_server() as told:
        yield told


@contextmanager
def raw_server(answer: bytes) -> Iterator[str]:
    """A socket that sends any bytes to the first client."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join()


@pytest.fixture
def closed_port() -> Iterator[int]:
    with held_ports(1) as (port,):
        yield port


def test_a_record_arrives_whole_at_the_task_s_address(gateway: Told) -> None:
    HttpUploader(f"{gateway.url}/penrose/", TASK).send(RECORD)

    ((method, path, _, body),) = gateway.seen
    assert (method, path) == ("POST", f"/penrose/tasks/{TASK.hex()}/reports")
    assert body == RECORD


def test_no_header_tells_clients_apart(gateway: Told) -> None:
    HttpUploader(gateway.url, TASK).send(RECORD)

    ((_, _, headers, _),) = gateway.seen
    assert headers == {
        "Host": gateway.url.removeprefix("http://"),
        "Accept-Encoding": "identity",
        "Content-Length": "4096",
        "Content-Type": "application/octet-stream",
    }


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("retry_after", "pause_s"),
    [
        ("17", 17.0),
        ("0.25", 0.25),
        ("0", 0.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
        ("-5", 1.0),
        ("\u00b2", 1.0),
        ("nan", 1.0),
        ("inf", 3600.0),
        ("99999999999", 3600.0),
        ("", 1.0),
    ],
)
def test_a_busy_gateway_says_when_to_come_back(
    gateway: Told, status: int, retry_after: str, pause_s: float
) -> None:
    gateway.status = status
    gateway.headers = {"Retry-After": retry_after}

    with pytest.raises(BusyError) as caught:
        HttpUploader(gateway.url, TASK).send(RECORD)
    assert caught.value.retry_after_s == pause_s


def test_a_busy_gateway_without_a_time_is_asked_again_after_a_second(gateway: Told) -> None:
    gateway.status = 503

    with pytest.raises(BusyError, match="busy: 503") as caught:
        HttpUploader(gateway.url, TASK).send(RECORD)
    assert caught.value.retry_after_s == 1.0


@pytest.mark.parametrize("status", [400, 403, 404, 413])
def test_a_refusal_carries_the_gateway_s_words(gateway: Told, status: int) -> None:
    gateway.status = status
    gateway.body = json.dumps(
        {"title": "t", "detail": "Too old.", "remedy": "Set the clock.", "more": 1}
    ).encode()

    with pytest.raises(RefusedReportError, match=r"Too old\. Set the clock\.") as caught:
        HttpUploader(gateway.url, TASK).send(RECORD)
    assert not isinstance(caught.value, TransportError)


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b'{"detail": 5}', b"[]", b'"text"'])
def test_a_refusal_without_a_problem_document_still_has_a_message_and_a_remedy(
    gateway: Told, body: bytes
) -> None:
    gateway.status = 400
    gateway.body = body

    with pytest.raises(RefusedReportError, match="answered 400") as caught:
        HttpUploader(gateway.url, TASK).send(RECORD)
    assert caught.value.remedy


@pytest.mark.parametrize("status", [408, 500, 502, 504])
def test_a_failing_gateway_is_tried_again(gateway: Told, status: int) -> None:
    gateway.status = status

    with pytest.raises(TransportError, match=f"answered {status}") as caught:
        HttpUploader(gateway.url, TASK).send(RECORD)
    assert not isinstance(caught.value, BusyError)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x00" * 100,
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n",
    ],
)
def test_whatever_else_answers_is_no_acknowledgement(answer: bytes) -> None:
    with raw_server(answer) as url, pytest.raises(TransportError, match="cannot be reached"):
        HttpUploader(url, TASK, timeout_s=5).send(RECORD)


def test_nobody_listening_is_a_transport_error(closed_port: int) -> None:
    with pytest.raises(TransportError, match=f"127.0.0.1:{closed_port} cannot be reached"):
        HttpUploader(f"http://127.0.0.1:{closed_port}", TASK).send(RECORD)


def test_an_endless_answer_is_not_read_to_its_end(gateway: Told) -> None:
    gateway.status = 400
    gateway.body = b" " * (4 << 20) + b'{"detail": "far away"}'

    with pytest.raises(RefusedReportError, match="answered 400"):
        HttpUploader(gateway.url, TASK).send(RECORD)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "gateway",
        "ftp://gateway",
        "https://gateway",
        "http://",
        "http://h:port",
        "http://h:70000",
        "http://h:0",
    ],
)
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(ConfigError, match="Write http://HOST:PORT"):
        HttpUploader(address, TASK)
    with pytest.raises(ConfigError, match="Write http://HOST:PORT"):
        fetch_task(address, TASK)


def test_a_task_is_fetched_as_published(gateway: Told) -> None:
    gateway.body = b"signed task"

    assert fetch_task(gateway.url, TASK) == b"signed task"
    assert gateway.seen[0][:2] == ("GET", f"/tasks/{TASK.hex()}")


def test_a_task_that_the_gateway_does_not_have_is_named(gateway: Told, closed_port: int) -> None:
    gateway.status = 404
    gateway.body = b'{"detail": "Unknown task."}'

    with pytest.raises(TransportError, match=f"no task {TASK.hex()}: Unknown task"):
        fetch_task(gateway.url, TASK)
    with pytest.raises(TransportError, match="cannot be reached"):
        fetch_task(f"http://127.0.0.1:{closed_port}", TASK)
