"""What switching a client off deletes, whom it stops, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from penrose_ray.actors.state_directory import StateDirectory, SwitchedOff
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER = """
import fcntl, os, signal, sys, time
from pathlib import Path
kind, state = sys.argv[1], Path(sys.argv[2])
if kind == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
file = os.open(state / "client.pid", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(file, fcntl.LOCK_EX)
if kind != "late":
    os.ftruncate(file, 0)
    os.write(file, str(os.getpid()).encode())
print("locked", flush=True)
if kind == "late":
    sys.stdin.readline()
    os.ftruncate(file, 0)
    os.write(file, str(os.getpid()).encode())
time.sleep(600)
"""
"""Holds a state's lock as a client does; `late` writes its number only when it is told to."""


@pytest.fixture
def state(tmp_path: Path) -> StateDirectory:
    return StateDirectory(tmp_path / "state")


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def fill(state: StateDirectory) -> None:
    """All that clients write."""
    state.lock()
    state.release()
    for folder in (state.rings, state.path / "tls", state.path / "tor"):
        folder.mkdir(mode=0o700)
        (folder / "1.ring").write_text("x")
    for name in (
        "client.source",
        "spool.sqlite",
        "spool.sqlite-wal",
        "spool.key",
        "sent.sqlite",
        "sent.sqlite-shm",
    ):
        (state.path / name).write_text("x")
    for name in ("tokens.sqlite", "torrc", "tls/pins", "tls/client.pem", "tls/client.key", ".spool.key.0a1b"):
        (state.path / name).write_text("x")
    (state.path / "tls" / "1.ring").unlink()


@contextmanager
def holder(state: StateDirectory, kind: str = "plain") -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, kind, state.path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            yield process
        finally:
            process.kill()  # where the test has failed: its end is waited for


def test_all_that_clients_write_goes_and_the_directory_with_it(state: StateDirectory) -> None:
    fill(state)
    assert state.switch_off() == SwitchedOff(ran=False, kept=())
    assert not state.path.exists()


def test_what_no_client_wrote_stays_and_is_named(state: StateDirectory, tmp_path: Path) -> None:
    fill(state)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "photo").write_text("mine")
    (state.path / "thesis.txt").write_text("mine")
    (state.path / "tls" / "bank.pem").write_text("mine")
    (state.path / "tor" / "link").symlink_to(elsewhere)
    assert state.switch_off() == SwitchedOff(ran=False, kept=("thesis.txt", "tls"))
    assert (state.path / "thesis.txt").read_text() == "mine"
    assert names(state.path / "tls") == ["bank.pem"]
    assert (elsewhere / "photo").exists()


@pytest.mark.parametrize("foreign", [(), ("thesis.txt",), ("tor", "thesis.txt"), (".bashrc", "tls")])
def test_a_directory_that_no_client_used_is_refused(state: StateDirectory, foreign: tuple[str, ...]) -> None:
    for name in foreign:
        (state.path / name).write_text("mine")
    with pytest.raises(ConfigError, match="nothing was deleted"):
        state.switch_off()
    assert names(state.path) == sorted(foreign)


def test_a_running_client_is_stopped_before_anything_goes(state: StateDirectory) -> None:
    with holder(state) as client:
        assert state.switch_off().ran
        assert client.wait(120) == -signal.SIGTERM


def test_a_client_that_ends_only_when_killed_is_gone_before_anything_goes(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.actors.state_directory._STOP_S", 0.3)
    with holder(state, "stubborn") as client:
        assert state.switch_off() == SwitchedOff(ran=True, kept=())
        assert client.wait(120) == -signal.SIGKILL
    assert not state.path.exists()


def test_a_client_that_has_not_written_its_number_yet_is_waited_for(
    state: StateDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        holder(state, "late") as client,
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander,
    ):
        (state.path / "client.pid").write_text(str(bystander.pid))  # of an earlier client, killed
        waits: list[float] = []

        def tell(pause_s: float) -> None:
            if not waits and client.stdin is not None:
                client.stdin.write("\n")
                client.stdin.flush()
            waits.append(pause_s)
            client.poll()

        monkeypatch.setattr("penrose_ray.actors.state_directory.time.sleep", tell)
        assert state.switch_off().ran
        assert waits
        assert client.wait(120) == -signal.SIGTERM
        assert bystander.poll() is None, "only who holds the lock is stopped"
        bystander.kill()


def test_one_that_dies_meanwhile_is_no_error(state: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    with holder(state) as client:
        kill = os.kill

        def late(pid: int, number: int) -> None:
            kill(client.pid, signal.SIGKILL)
            client.wait()
            kill(pid, number)

        monkeypatch.setattr("penrose_ray.actors.state_directory.os.kill", late)
        assert state.switch_off().ran
    assert not state.path.exists()


def test_who_waits_for_a_directory_that_is_switched_off_locks_the_one_that_is_there(tmp_path: Path) -> None:
    first = StateDirectory(tmp_path / "state")
    first.lock()
    first.release()
    assert first.switch_off().ran is False
    second = StateDirectory(tmp_path / "state")
    second.lock()
    with pytest.raises(ConfigError, match="Another client runs"):
        StateDirectory(tmp_path / "state").lock()
    second.release()
