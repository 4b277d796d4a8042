"""`penrose up`, `status` and `down` as an operator uses them."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import stat
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from e2e import up
from waiting import until

from penrose_ray.actors.processes import family, is_alive
from penrose_ray.cli.control import ControlServer, RunningError, SlowError, refuse_if_running, request
from penrose_ray.errors import JournalError, TransportError
from penrose_ray.release.audit import read_audit
from penrose_ray.transport.http import fetch_task
from penrose_ray.types import TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

    Call = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that would work for an hour is told to have been too slow."""
    for module in ("service", "classes"):
        monkeypatch.setattr(f"penrose_ray.cli.{module}.LONG_S", 300.0)


@pytest.fixture
def config(tmp_path: Path, design_keys: DesignKeys) -> Path:
    return up.config_in(tmp_path, design_keys)


def test_sigterm_drains_like_down_with_all_gateways(call: Call, config: Path) -> None:
    service = up.Service(config, "service.gateways=2")
    assert "2 gateways share the next address\n" in service.lines
    code, _, err = call("status", config)
    assert (code, "2 of 2 gateways take reports" in err) == (0, True), err
    processes = family(service.process.pid)
    service.process.send_signal(signal.SIGTERM)
    assert service.wait() == 0
    assert "everything that was acknowledged is on disk" in service.lines[-1]
    assert not [pid for pid in processes if is_alive(pid)]


@pytest.fixture
def service(config: Path) -> Iterator[up.Service]:
    started = up.Service(config)
    yield started
    if started.process.poll() is None:
        started.process.send_signal(signal.SIGTERM)
        assert started.wait() == 0


def test_up_takes_reports_tells_its_state_and_goes_down_whole(
    call: Call, config: Path, service: up.Service
) -> None:
    found: dict[str, object] = {}

    def reports() -> int:
        code, out, err = call("status", config, "--format", "json")
        assert code == 0, err
        found.update(json.loads(out)[0])
        (client,) = found["clients"]  # type: ignore[misc]
        assert "error" not in client, client  # type: ignore[operator]
        found["reports"] = sum(shard["reports"] for shard in found["shards"])  # type: ignore[attr-defined]
        return found["reports"]  # type: ignore[return-value]

    until(reports)
    assert found["url"] == service.url
    assert 0 <= float(str(found["lag_s"])) < 60
    assert sum(shard["buckets"] for shard in found["shards"]) == 256  # type: ignore[attr-defined]
    assert fetch_task(service.url, TaskId(bytes.fromhex(str(found["task_id"]))))
    handovers = found["handovers"]
    assert isinstance(handovers, dict)
    assert handovers["next_s"] % 86_400 == 0, "daily at midnight"
    assert handovers["last"] is None
    code, out, err = call("status", config)
    assert "shard-0" in out
    assert f"next hand-over: {datetime.fromtimestamp(handovers['next_s'], tz=UTC):%Y-%m-%d} 00:00 UTC" in err
    assert "last hand-over: none yet" in err
    assert call("up", config)[0] == 15, "a second service in the same place"
    assert call("compact", config)[2] == "0 batches moved\n", "nothing is cold yet"

    (first, *_) = json.loads(call("classes", "list", config, "--format", "json")[1])
    code, _, err = call("classes", "split", config, first["class_id"], first["snippet_hash"])
    assert (code, "founded class" in err) == (10, True), err
    code, _, err = call("classes", "merge", config, first["class_id"], first["class_id"])
    assert (code, "cannot be merged" in err) == (10, True), err

    processes = family(service.process.pid)
    code, _, err = call("down", config)
    assert (code, service.wait()) == (0, 0), err
    assert "everything that was acknowledged is on disk" in service.lines[-1]
    assert not [pid for pid in processes if is_alive(pid)]
    log = read_audit((config.parent / "state" / "audit.jsonl").read_bytes(), "audit.jsonl")
    told = [(each.event, each.detail) for each in log if each.event != "scaled"]
    assert [event for event, _ in told] == ["started", *["command"] * 4, "draining", "stopped"]
    assert [detail for event, detail in told if event == "command"] == [
        "compact",
        "split refused: config",
        "merge refused: config",
        "down",
    ]
    kept = 0
    for journal in (config.parent / "state").rglob("shard-*.sqlite"):
        with sqlite3.connect(journal) as database:
            kept += database.execute("SELECT COUNT(*) FROM partial_histograms").fetchone()[0]
        database.close()
    assert kept >= int(str(found["reports"]))
    code, _, err = call("status", config)
    assert code == 40
    assert "penrose up" in err


@pytest.mark.parametrize("command", ["status", "compact", "down", "release close"])
def test_a_setting_says_where_the_service_is_asked(
    call: Call, config: Path, tmp_path: Path, command: str
) -> None:
    code, _, err = call(*command.split(), config, "--set", f'service.state_dir="{tmp_path}/other"')
    assert code == 40
    assert f"{tmp_path}/other/control.sock" in err


def test_a_signed_task_that_is_not_the_service_s_is_refused_before_it_starts(
    call: Call, config: Path
) -> None:
    code, _, err = call("up", config, "--set", "task.min_contributors=7")
    assert (code, "the signed task has 200" in err) == (10, True)
    code, _, err = call("up", config, "--set", "service.seal_tags=true")
    assert (code, "names no key of the service" in err) == (10, True)
    (config.parent / "fleet.task").unlink()
    code, _, err = call("up", config)
    assert (code, "Get the signed task" in err) == (13, True)
    code, _, err = call("release", "open", config)
    assert (code, "has no design server" in err) == (10, True)
    laptop = up.ROOT / "configs" / "laptop.toml"
    code, _, err = call("release", "open", laptop, "--set", f'service.state_dir="{config.parent}/other"')
    assert (code, f"{config.parent}/other/control.sock" in err) == (40, True)


def test_the_control_socket_is_its_owner_s(tmp_path: Path) -> None:
    with ControlServer(tmp_path, {}):
        assert stat.S_IMODE((tmp_path / "control.sock").stat().st_mode) == 0o600
        assert request(tmp_path, "ping") == "pong"
        with pytest.raises(RunningError):
            refuse_if_running(tmp_path)
    assert not (tmp_path / "control.sock").exists()


def test_a_command_gets_its_arguments(tmp_path: Path) -> None:
    def merge(kept: str, gone: str) -> object:
        return [gone, kept]

    with ControlServer(tmp_path, {"merge": merge}):
        assert request(tmp_path, "merge", "a", "b") == ["b", "a"]
        with pytest.raises(TransportError, match="argument"):
            request(tmp_path, "merge", "a")


def test_what_goes_wrong_in_a_command_reaches_the_caller(tmp_path: Path) -> None:
    def broken() -> object:
        raise JournalError("The disk is full.", remedy="Free it.")

    with ControlServer(tmp_path, {"broken": broken}):
        with pytest.raises(TransportError, match="disk is full"):
            request(tmp_path, "broken")
        with pytest.raises(TransportError, match="no command 'dance'"):
            request(tmp_path, "dance")


def test_a_service_that_does_not_answer_in_time_is_still_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.cli.control._PING_S", 0.05)
    with socket.socket(socket.AF_UNIX) as slow:
        slow.bind(str(tmp_path / "control.sock"))
        slow.listen()
        with pytest.raises(SlowError, match=r"has not answered compact within 0\.05 s"):
            request(tmp_path, "compact", timeout_s=0.05)
        with pytest.raises(RunningError):
            ControlServer(tmp_path, {})
        assert (tmp_path / "control.sock").is_socket()


def test_a_dead_service_s_socket_is_taken_over(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "control.sock"))
    with ControlServer(tmp_path, {}):
        assert request(tmp_path, "ping") == "pong"
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - names are all that matters
