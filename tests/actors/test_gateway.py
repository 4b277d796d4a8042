"""The HTTP face, with a real server, a real matcher journal and a real shard."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from e2e.one_shard import OneShard

from penrose_ray.actors.gateway import Gateway
from penrose_ray.actors.intake import Intake, UnavailableError
from penrose_ray.actors.matcher import Matcher
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.envelope import ServiceKey
from penrose_ray.errors import (
    ConfigError,
    JournalError,
    PortInUseError,
    RefusedReportError,
    TaskError,
    WrongKeyError,
)
from penrose_ray.seal import Contribution, Sealer
from penrose_ray.snippet.minhash import signature
from penrose_ray.task import sign, verify
from penrose_ray.transport.http import HttpUploader, fetch_task
from penrose_ray.transport.uploader import BusyError
from penrose_ray.wire import RECORD_BYTES, Report, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task


class LocalBackend(OneShard):
    """With journals of their own."""

    def __init__(self, home: Path, signed: bytes) -> None:
        self.matcher = Matcher(home / "classes.sqlite", signed)
        self.shard = ShardService(home / "shard.sqlite", verify(signed), SystemClock())


SERVICE_KEY = ServiceKey(bytes(range(32)))


class Service(NamedTuple):
    port: int
    task: Task
    backend: LocalBackend
    seal: Callable[..., bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def post(self, body: bytes, path: str | None = None) -> tuple[int, dict[str, object]]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", path or f"/tasks/{self.task.task_id.hex()}/reports", body)
        answer = connection.getresponse()
        parsed = json.loads(answer.read())
        connection.close()
        return answer.status, parsed


@pytest.fixture
def service(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    make_task: Callable[..., Task],
    design_keys: DesignKeys,
) -> Iterator[Service]:
    task = make_task(reports_per_class=0, cover_rate=0.0, **getattr(request, "param", {}))
    signed = sign(task, design_keys.signing).encode()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def made() -> LocalBackend:  # in the loop's thread, where SQLite will be used
        return LocalBackend(tmp_path, signed)

    backend = asyncio.run_coroutine_threadsafe(made(), loop).result(30)
    gateway = Gateway(Intake(signed, backend, most_reports=8, key=SERVICE_KEY))
    port = asyncio.run_coroutine_threadsafe(gateway.start("127.0.0.1", 0), loop).result(30)
    sealer = Sealer(task, "Test GPU", Encryptor(task.key(), task.profile()))

    def seal(value: int = 3, *, names: int = 20, hours_ago: float = 0) -> bytes:
        counts = np.zeros(128, np.int64)
        counts[value] = 50
        table = [f"kernel_{n}_{names}" for n in range(names)]
        snippet = signature(np.arange(200) % names, table, scheme_id=task.signature_scheme)
        now_s = SystemClock().now_s() - 3600 * hours_ago
        report = sealer.seal(Contribution(0, counts, real=True), snippet, now_s=now_s)
        return encode(report, task.service_key)

    yield Service(port, task, backend, seal)
    asyncio.run_coroutine_threadsafe(gateway.stop(), loop).result(120)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    backend.shard.close()


def changed(record: bytes, **fields: object) -> bytes:
    report = decode(record)
    values = {name: getattr(report, name) for name in report.__struct_fields__}
    return encode(Report(**{**values, **fields}))  # type: ignore[arg-type]


def test_a_gateway_without_the_task_s_key_does_not_start(
    tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys
) -> None:
    signed = sign(make_task(service_key=ServiceKey(b"k" * 32).public), design_keys.signing).encode()
    backend = LocalBackend(tmp_path, sign(make_task(), design_keys.signing).encode())
    for key in (None, ServiceKey(b"l" * 32)):
        with pytest.raises(WrongKeyError, match="sealed to"):
            Intake(signed, backend, most_reports=8, key=key)
    backend.shard.close()


@pytest.mark.parametrize("service", [{"service_key": SERVICE_KEY.public}], indirect=True)
def test_sealed_reports_are_opened_and_others_refused(service: Service) -> None:
    record = service.seal()
    assert service.post(record) == (200, {"accepted": 1, "refused": []})
    assert service.post(record)[1] == {"accepted": 1, "refused": []}
    assert service.backend.shard.counts().reports == 1

    report = decode(record, SERVICE_KEY)
    status, problem = service.post(encode(report))
    assert (status, problem["title"]) == (400, "invalid-message")
    assert "version 1, this task's have version 2" in str(problem["detail"])
    status, problem = service.post(encode(report, ServiceKey(b"k" * 32).public))
    assert (status, problem["title"]) == (400, "sealed-tags")
    assert "Fetch the task" in str(problem["remedy"])


def test_a_report_is_accepted_once_however_often_it_is_sent(service: Service) -> None:
    record = service.seal()

    for _ in range(3):
        status, receipt = service.post(record)
        assert (status, receipt) == (200, {"accepted": 1, "refused": []})

    assert service.backend.shard.counts().reports == 1


def test_a_repeated_report_founds_no_class(service: Service) -> None:
    record = service.seal()
    service.post(record)
    names = [f"stranger_{n}" for n in range(30)]
    stranger = signature(np.arange(100) % 30, names, scheme_id=service.task.signature_scheme)

    status, _ = service.post(changed(record, signature=stranger.to_bytes()))

    assert status == 200
    assert len(service.backend.matcher.classes()) == 1


def test_the_task_is_published_and_verifies(service: Service, design_keys: DesignKeys) -> None:
    raw = fetch_task(service.url, service.task.task_id)
    signer = design_keys.signing.public_key().public_bytes_raw()

    assert verify(raw, trusted_signer=signer) == service.task
    with pytest.raises(TaskError, match="pinned"):
        verify(raw, trusted_signer=bytes(32))


BAD_BODIES = {
    "empty": (lambda _: b"", 400, "invalid-message"),
    "truncated": (lambda record: record[:-1], 400, "invalid-message"),
    "garbage": (lambda _: b"\xff" * RECORD_BYTES, 400, "invalid-message"),
    "json": (lambda _: b'{"hello": 1}'.ljust(RECORD_BYTES), 400, "invalid-message"),
    "wrong version": (lambda record: b"\x09" + record[1:], 400, "invalid-message"),
    "dirty padding": (lambda record: record[:-1] + b"\x01", 400, "invalid-message"),
    "too many": (lambda record: record * 9, 413, "too-large"),
    "oversized": (lambda record: record * 40, 413, "too-large"),
    "wrong task": (lambda record: changed(record, task_id=bytes(32)), 404, "wrong-task"),
    "wrong scheme": (lambda record: changed(record, scheme="other"), 400, "wrong-scheme"),
    "short signature": (lambda record: changed(record, signature=b"abc"), 400, "invalid-message"),
    "counter set": (lambda record: changed(record, counter_set=99), 400, "counter-set"),
    "short ciphertext": (lambda record: changed(record, blob=b"\x01" * 100), 400, "ciphertext"),
    "zero ciphertext": (lambda record: changed(record, blob=bytes(1536)), 400, "ciphertext"),
    "huge ciphertext": (lambda record: changed(record, blob=b"\xff" * 1536), 400, "ciphertext"),
    "two days old": (
        lambda record: changed(record, created_hour=decode(record).created_hour - 48),
        400,
        "too-late",
    ),
    "from the future": (
        lambda record: changed(record, created_hour=decode(record).created_hour + 5),
        400,
        "too-early",
    ),
}


@pytest.mark.parametrize("kind", BAD_BODIES)
def test_a_body_that_is_no_report_is_refused_and_harms_nothing(service: Service, kind: str) -> None:
    damage, status, code = BAD_BODIES[kind]
    service.post(service.seal(4))

    answered, problem = service.post(damage(service.seal()))

    assert (answered, problem["title"]) == (status, code), problem
    assert problem["type"] == f"urn:penrose:error:{code}"
    assert problem["detail"]
    assert problem["remedy"]
    assert service.backend.shard.counts().reports == 1
    assert service.post(service.seal(5))[0] == 200, "the service stays up"


def test_an_unknown_task_or_page_is_a_problem_too(service: Service) -> None:
    assert service.post(service.seal(), f"/tasks/{'0' * 64}/reports")[1]["title"] == "wrong-task"
    status, problem = service.post(b"", "/nowhere")
    assert (status, problem["type"]) == (404, "urn:penrose:error:http")


def test_one_bad_report_among_good_ones_is_named_and_the_others_are_taken(service: Service) -> None:
    good = [service.seal(value) for value in (1, 2, 3)]
    bad = changed(good[0], report_id=bytes(32), blob=bytes(1536))

    status, receipt = service.post(good[0] + bad + good[1] + b"\x09" + good[2][1:])

    assert status == 200
    assert receipt["accepted"] == 2
    refused = receipt["refused"]
    assert isinstance(refused, list)
    assert [(each["index"], each["code"]) for each in refused] == [(1, "ciphertext"), (3, "invalid-message")]


@pytest.mark.parametrize(
    "fault",
    [
        UnavailableError("The shard is restarting.", remedy="Again."),
        JournalError("The disk of /srv/shard-0.sqlite is full.", remedy="Free it."),
    ],
    ids=["restarting", "disk full"],
)
def test_while_a_shard_cannot_take_reports_clients_are_asked_to_come_back(
    service: Service, fault: Exception
) -> None:
    uploader = HttpUploader(service.url, service.task.task_id)
    record = service.seal()
    service.backend.fault = fault
    with pytest.raises(BusyError) as caught:
        uploader.send(record)
    assert caught.value.retry_after_s == 1.0
    problem = service.post(record)[1]
    assert problem["detail"] == "A part of the service is not ready.", "its paths and names stay here"

    service.backend.fault = None
    uploader.send(record)
    assert service.backend.shard.counts().reports == 1


def test_what_went_wrong_inside_is_told_to_the_log_alone(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    service.backend.fault = ConfigError("/srv/keys/service.key: no such file.", remedy="Check the path.")
    status, problem = service.post(service.seal())
    assert (status, problem["title"]) == (500, "config")
    assert "/srv" not in str(problem)
    assert "/srv/keys/service.key" in caplog.text


def test_a_refusal_reaches_the_client_with_its_remedy(service: Service) -> None:
    uploader = HttpUploader(service.url, service.task.task_id)
    with pytest.raises(RefusedReportError) as caught:
        uploader.send(service.seal(hours_ago=40))
    assert "36" in caught.value.message
    assert caught.value.remedy


def test_a_taken_port_is_named(service: Service) -> None:
    gateway = Gateway(Intake(sign_again(service), service.backend, most_reports=1))
    with pytest.raises(PortInUseError, match=str(service.port)):
        asyncio.run(gateway.start("127.0.0.1", service.port))


def sign_again(service: Service) -> bytes:
    return fetch_task(service.url, service.task.task_id)


def test_another_method_is_told_which_one_is_right(service: Service) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("PUT", f"/tasks/{service.task.task_id.hex()}/reports", b"x")
    answer = connection.getresponse()
    assert answer.status == 405
    assert "POST" in json.loads(answer.read())["detail"]
    assert answer.headers["Allow"] == "POST"
    assert answer.headers["Server"] == "penrose"
    connection.close()


def test_a_compressed_body_is_refused_unread(service: Service) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
    path = f"/tasks/{service.task.task_id.hex()}/reports"
    connection.request("POST", path, b"not gzip", {"Content-Encoding": "gzip"})
    answer = connection.getresponse()
    assert answer.status == 415
    assert "not compressed" in json.loads(answer.read())["detail"]
    connection.close()


def test_garbage_leaves_no_address_in_the_logs(
    service: Service, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(b"POST /tasks/x/reports HTTP/1.1\r\nContent-Length: -5\r\n\r\nbody of a client")
        assert connection.recv(100)
    assert "127.0.0.1" not in caplog.text + "".join(capfd.readouterr())
    assert service.post(service.seal())[0] == 200
