"""The gateway as clients meet it that are slow, wrong or many: raw sockets, ready, metrics, throttling."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from e2e.http_service import HttpService
from e2e.reports import one_bin_each
from prometheus_client.parser import text_string_to_metric_families

from penrose_ray.actors.gateway import Limits
from penrose_ray.actors.intake import BacklogError
from penrose_ray.actors.openapi import document
from penrose_ray.task import sign
from penrose_ray.wire import RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

LIMITS = Limits(body_s=0.3, idle_s=0.3)


@pytest.fixture
def make_service(
    tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys
) -> Iterator[Callable[[Limits], HttpService]]:
    task = make_task(reports_per_class=0, cover_rate=0.0)
    signed = sign(task, design_keys.signing).encode()
    made: list[HttpService] = []

    def make(limits: Limits) -> HttpService:
        made.append(HttpService(tmp_path, signed, limits))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def service(make_service: Callable[[Limits], HttpService]) -> HttpService:
    return make_service(Limits())


@pytest.fixture
def impatient(make_service: Callable[[Limits], HttpService]) -> HttpService:
    return make_service(LIMITS)


@pytest.fixture(scope="module")
def records(make_task: Callable[..., Task]) -> list[bytes]:
    return one_bin_each(make_task(reports_per_class=0, cover_rate=0.0), 1)[:8]


def talk(port: int, *pieces: bytes) -> bytes:
    """Send pieces, then read until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
        return answer


def head(service: HttpService, *lines: str) -> bytes:
    return "\r\n".join([f"POST {service.reports} HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def problem_in(answer: bytes) -> dict[str, object]:
    top, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/problem+json" in top
    found: dict[str, object] = json.loads(body)
    assert found["remedy"]
    return found


def test_a_head_that_does_not_come_is_cut_off(impatient: HttpService) -> None:
    assert talk(impatient.port, b"POST /tasks/") == b""
    assert talk(impatient.port) == b""


def test_a_body_that_does_not_come_is_answered_and_cut_off(impatient: HttpService) -> None:
    answer = talk(impatient.port, head(impatient, f"Content-Length: {RECORD_BYTES}"), b"x" * 100)
    assert answer.startswith(b"HTTP/1.1 408")
    assert problem_in(answer)["title"] == "too-slow"


def test_a_body_that_drips_is_cut_off_as_well(impatient: HttpService) -> None:
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=30) as connection:
        connection.sendall(head(impatient, "Transfer-Encoding: chunked"))
        answer = b""
        connection.settimeout(0.02)
        sent = 0
        while not answer:
            sent += 1
            connection.sendall(b"1\r\nx\r\n")
            try:
                answer = connection.recv(1000)
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 408")
    assert sent < RECORD_BYTES


def test_a_body_that_says_it_is_too_large_is_not_read(service: HttpService) -> None:
    answer = talk(service.port, head(service, "Content-Length: 99999999999"), b"x" * 1000)
    assert answer.startswith(b"HTTP/1.1 413")
    assert problem_in(answer)["title"] == "too-large"


def test_a_body_that_grows_too_large_is_cut_off(service: HttpService) -> None:
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
        connection.sendall(head(service, "Transfer-Encoding: chunked"))
        with contextlib.suppress(ConnectionError):  # which is what must come, however long we send
            while True:
                connection.sendall(chunk)
    assert service.request("GET", "/health")[0] == 200


def test_it_is_ready_when_every_part_answers(service: HttpService) -> None:
    assert service.request("GET", "/ready")[::2] == (
        200,
        b'{"ready": true, "gateways": ["gateway-0", "gateway-1"]}',
    )


def test_it_names_the_parts_that_do_not_answer(service: HttpService) -> None:
    service.gone = ["matcher", "shard-1"]
    status, headers, raw = service.request("GET", "/ready")
    assert status == 503
    assert headers["Retry-After"] == "1"
    assert json.loads(raw)["detail"] == "Not there: matcher, shard-1."


def test_many_askers_do_not_load_the_other_parts(service: HttpService) -> None:
    for _ in range(50):
        assert service.request("GET", "/ready")[0] == 200
    assert service.asked < 25


def test_metrics_are_served_for_every_part(service: HttpService, records: list[bytes]) -> None:
    def counted() -> dict[tuple[str, ...], float]:
        status, headers, raw = service.request("GET", "/metrics")
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return {
            (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(raw.decode())
            for sample in family.samples
        }

    before = counted()
    assert service.post(records[0])[0] == 200
    assert service.post(records[0])[0] == 200
    assert service.post(b"")[0] == 400
    after = counted()

    def grown(*key: str) -> float:
        return after.get(key, 0.0) - before.get(key, 0.0)

    assert grown("penrose_http_requests_total", "gateway-0", "reports", "200") == 2
    assert grown("penrose_http_requests_total", "gateway-0", "reports", "400") == 1
    assert grown("penrose_reports_total", "gateway-0", "accepted", "gateway") == 1
    assert grown("penrose_reports_total", "gateway-0", "known", "gateway") == 1
    assert grown("penrose_http_body_bytes_total", "gateway-0") == 2 * RECORD_BYTES
    assert after["penrose_up", "shard-0"] == 1
    assert after["penrose_up", "shard-1"] == 0
    assert after["penrose_sums", "shard-0"] == 3
    assert grown("penrose_busy_seconds_total", "gateway-0", "gateway") > 0


def test_a_throttled_service_acknowledges_what_it_knows_and_asks_the_others_to_come_again(
    service: HttpService, records: list[bytes]
) -> None:
    assert service.post(records[0])[0] == 200
    service.admitted = False
    assert service.post(records[0])[2] == {"accepted": 1, "refused": []}
    status, headers, answer = service.post(records[1])
    assert (status, answer["title"], headers["Retry-After"]) == (429, "busy", "1")
    status, _, answer = service.post(records[0] + records[1])
    assert status == 200
    assert answer["accepted"] == 1
    assert service.post(records[1] + records[2])[0] == 429
    service.admitted = True
    assert service.post(records[1] + records[2])[2]["accepted"] == 2
    assert service.shard.counts().reports == 3


def test_known_reports_are_acknowledged_whatever_holds_up_new_ones(
    service: HttpService, records: list[bytes]
) -> None:
    assert service.post(records[0])[0] == 200
    service.shard.upkeep.press("the disk is nearly full")
    assert service.post(records[0])[2]["accepted"] == 1
    status, headers, answer = service.post(records[1])
    assert (status, headers["Retry-After"], answer["detail"]) == (429, "1", "the disk is nearly full")
    service.shard.upkeep.press("")
    service.clock.advance(40 * 3600)
    assert service.post(records[0])[2]["accepted"] == 1, "a retry of 40 hours ago"
    assert service.post(records[1])[2]["title"] == "too-late"
    assert service.shard.counts().reports == 1


def test_a_backlog_is_answered_with_a_pause(service: HttpService, records: list[bytes]) -> None:
    service.fault = BacklogError("9 reports wait already, 8 may.", remedy="Again.")
    status, headers, answer = service.post(records[0])
    assert (status, answer["title"], headers["Retry-After"]) == (429, "busy", "1")


def test_what_was_not_foreseen_is_a_problem_too(service: HttpService, records: list[bytes]) -> None:
    service.fault = RuntimeError("secret detail")
    status, headers, answer = service.post(records[0])
    assert (status, answer["title"]) == (500, "internal")
    assert headers["Content-Type"].startswith("application/problem+json")
    assert "secret" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/tasks/" + "0" * 64, 404),
        ("GET", "/tasks/" + "0" * 64 + "/quote", 404),
        ("DELETE", "/health", 405),
        ("POST", "/metrics", 405),
        ("PUT", "/tasks/{task}", 405),
        ("GET", "/tasks/{task}/reports", 405),
    ],
)
def test_every_refusal_is_a_problem(service: HttpService, method: str, path: str, status: int) -> None:
    answered, headers, raw = service.request(method, path.format(task=service.task.task_id.hex()))
    assert answered == status
    assert headers["Content-Type"].startswith("application/problem+json")
    assert json.loads(raw)["status"] == status
    assert status != 405 or headers["Allow"]


def test_the_document_in_docs_is_the_one_that_is_served(service: HttpService) -> None:
    kept = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
    assert kept == document()
    served = json.loads(service.request("GET", "/openapi.json")[2])
    assert served["paths"].keys() == kept["paths"].keys()


def test_the_service_is_as_its_document_says(service: HttpService, tmp_path: Path) -> None:
    """Schemathesis sends what the document allows and what it does not, and compares the answers."""
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "run"),
            f"http://127.0.0.1:{service.port}/openapi.json",
            *("--checks", "all", "--max-examples", "20", "--seed", "6", "--no-color"),
            *("--exclude-checks", "positive_data_acceptance"),  # any bytes are allowed, few are reports
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Tested: 6" in run.stdout, "all but the document itself"
