"""`penrose label` against a real service: what is told, to whom, and what is not."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from e2e import fleet
from e2e.service_config import settings_in
from transport.servers import certificate
from waiting import program, until

from penrose_ray.actors.topology import build
from penrose_ray.analyse.frames import class_table, open_release
from penrose_ray.clock import SystemClock
from penrose_ray.transport.http import HttpUploader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.actors.topology import Topology
    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]

RARE = tuple(f"rare_{n}" for n in range(12))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> Iterator[Topology]:
    home = tmp_path_factory.mktemp("service")
    with build(*settings_in(home, design_keys, f"task.batch_s={fleet.LONG_S}")) as topology:
        (home / "a.task").write_bytes(topology.signed_task)
        topology.home = home  # type: ignore[attr-defined]
        yield topology


@pytest.fixture(scope="module")
def home(service: Topology) -> Path:
    return service.home  # type: ignore[attr-defined,no-any-return]


@pytest.fixture(scope="module")
def truth(service: Topology, home: Path) -> fleet.Truth:
    """Three clients run both programs."""
    truth = fleet.Truth()
    uploader = HttpUploader(service.url, service.task.task_id)
    for number in range(3):
        trace = home / f"client-{number}.json.gz"
        fleet.write_trace(trace, seed=number, rounds=4)
        client, outbox = fleet.replay_client(
            trace, service.task, uploader, truth, clock=SystemClock(), seed=number
        )
        fleet.play(client)
        until(outbox.flush)
    return truth


@pytest.fixture
def desk(home: Path) -> Iterator[str]:
    """`penrose release serve --classes` in a process of its own."""
    pem, key = certificate(home, "desk", hosts=("127.0.0.1",))
    command = ["release", "serve", home / "a.task", home / "releases", "--port", "0", "--classes"]
    command += ["--certificate", pem, "--key", key]
    with program([sys.executable, "-m", "penrose_ray.cli.app", *command], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        yield process.stderr.readline().split()[-1]
        process.terminate()
        assert process.wait(timeout=120) == 0


def reference(call: Call, service: Topology, home: Path, name: str, names: tuple[str, ...]) -> Path:
    trace, receipt = home / f"{name}.json.gz", home / f"{name}.receipt"
    fleet.write_trace(trace, seed=77, rounds=1, programs=(names,))
    given = ("--gateway", service.url, "--trace", trace, "--receipt", receipt)
    code, _, err = call("label", "run", name, home / "a.task", *given)
    assert code == 0, err
    assert "1 classes" in err
    assert stat.S_IMODE(receipt.stat().st_mode) == 0o600
    return receipt


def test_programs_name_the_classes_that_passed_the_gate_and_no_other(
    call: Call, service: Topology, home: Path, truth: fleet.Truth, desk: str
) -> None:
    receipts = {
        name: reference(call, service, home, name, names)
        for name, names in (("gemm", fleet.GEMM), ("my stencil", fleet.STENCIL), ("rare", RARE))
    }
    secured = ("--desk", desk, "--authorities", home / "desk.pem")
    assert call("label", "ask", receipts["gemm"], "--desk", desk)[0] == 45, "its certificate is nobody's here"
    code, _, err = call("label", "ask", receipts["gemm"], *secured, "-o", home / "labels.json")
    assert (code, "Ask again after the batch is released" in err) == (60, True)
    assert not (home / "labels.json").exists()

    handovers = [service.release(batch) for batch in service.batches()]
    release = home / "release.parquet"
    assert service.open(handovers, release).discarded == ()
    code, out, err = call(
        "label", "ask", *receipts.values(), *secured, "-o", home / "labels.json", "--format", "json"
    )
    assert code == 0, err
    told = {row["name"]: row["class"] for row in json.loads(out)}
    assert told["rare"] == "not past the gate"

    frame = open_release(release)
    classes = frame.groupby("label", observed=True)["class_id"].first().astype(str).to_dict()
    assert classes == {name: told[name] for name in ("gemm", "my stencil")}
    assert frame["count"].sum() == sum(int(each.sum()) for each in truth.counts.values()), "no sample added"
    means = class_table(release).set_index("label")["mean"]
    assert means["my stencil"] > 3 * means["gemm"]  # as the traces were written
    page = home / "report.html"
    assert call("report", release, "-o", page)[0] == 0
    text = page.read_text()
    assert "my stencil" in text
    assert told["gemm"][:8] not in text
    code, out, _ = call("label", "show", home / "labels.json", "--format", "json")
    assert sorted(row["name"] for row in json.loads(out)) == ["gemm", "my stencil"]


@pytest.mark.parametrize("gateway", ["http://127.0.0.1:9", "http://localhost:9"])
def test_a_gateway_that_is_not_there_is_named_and_no_report_counts_as_sent(
    call: Call, tmp_path: Path, design_keys: DesignKeys, monkeypatch: pytest.MonkeyPatch, gateway: str
) -> None:
    monkeypatch.setattr("penrose_ray.cli.label._SEND_S", 0.2)
    trace = tmp_path / "t.json.gz"
    fleet.write_trace(trace, seed=1, rounds=1)
    signed = fleet.signed_task(design_keys, fleet.counters_of(trace))
    (tmp_path / "a.task").write_bytes(signed.encode())
    given = ("--gateway", gateway, "--trace", trace, "--receipt", tmp_path / "r")
    code, out, err = call("label", "run", "gemm", tmp_path / "a.task", *given)
    assert (code, out) == (40, ""), err
    assert "reports wait: The gateway" in err
    (error,) = (line for line in err.splitlines() if line.startswith("error: "))
    found = re.fullmatch(r"error: (\d+) of (\d+) reports were not sent: .* cannot be reached: .*", error)
    assert found, error
    assert int(found[1]) == int(found[2]) > 0
    assert "remedy: Check --gateway" in err
    assert "reports sent" not in err


def test_a_desk_that_was_not_told_to_answers_nothing(
    call: Call, service: Topology, home: Path, truth: fleet.Truth
) -> None:
    assert truth.counts
    receipt = reference(call, service, home, "gemm", fleet.GEMM)
    command = ["release", "serve", home / "a.task", home / "releases", "--port", "0"]
    with program([sys.executable, "-m", "penrose_ray.cli.app", *command], stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        code, _, err = call("label", "ask", receipt, "--desk", url, "-o", home / "none.json")
        process.terminate()
    assert (code, "--classes" in err) == (40, True)


def test_what_is_no_reference_is_named(call: Call, service: Topology, home: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.json.gz"
    fleet.write_trace(trace, seed=1, rounds=1)
    given = ("--gateway", service.url, "--receipt", tmp_path / "r")
    task = home / "a.task"
    for arguments, wanted in (
        (("$x$", task, *given, "--trace", trace), 10),
        (("x", task, *given), 10),
        (("x", task, *given, "--trace", trace, "--", "true"), 10),
        (("x", task, *given, "--trace", tmp_path / "none"), 20),
        (("x", task, "--gateway", "http://127.0.0.1:9", "--receipt", tmp_path / "r", "--trace", task), 20),
        (("x", tmp_path / "none", *given, "--trace", trace), 10),
    ):
        assert call("label", "run", *arguments)[0] == wanted, arguments
    assert not (tmp_path / "r").exists()
    assert call("label", "ask", trace, "--desk", "http://127.0.0.1:9")[0] == 10
    receipt = reference(call, service, home, "gemm", fleet.GEMM)
    assert call("label", "ask", receipt, "--desk", "http://127.0.0.1:9")[0] == 40
    assert call("label", "ask", receipt, "--desk", "desk")[0] == 10
    code, _, err = call("label", "ask", receipt, "--desk", "http://10.0.0.7:8472")
    assert (code, "Plain http to the release desk" in err) == (10, True)
    for address in ("https://10.0.0.7:8472", "http://127.0.0.1:9"):
        code, _, err = call("label", "ask", receipt, "--desk", address, "--socks", "127.0.0.1:9050")
        assert (code, f"would not be used: {address}" in err) == (10, True)
    assert call("label", "show", tmp_path / "none")[0] == 10
