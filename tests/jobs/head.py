"""A Ray head on loopback as an operator starts one, with token authentication."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from ports import held_ports

from penrose_ray.actors.processes import family, is_alive
from penrose_ray.actors.ray_start import STORE_WAIT, patiently

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
TOKEN = "a1" * 32
_OWN = ("PYTHONPATH", "RAY_ADDRESS")
"""Variables that would let a job see this checkout, or another cluster."""
_GRACE_S = 60.0


def _stat(pid: int) -> list[str]:
    """State, parent, group, session and so on of a process; nothing when it is gone."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _session(leader: int) -> list[int]:
    """Processes of a session, those whose parent has ended, too."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if _stat(pid)[3:4] == [str(leader)]]


class RayHead:
    """`ray start --head --block` in a session of its own; whatever it started ends with it."""

    def __init__(self, home: Path) -> None:
        self._home = home
        token = home / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        kept = {name: value for name, value in os.environ.items() if name not in _OWN} | dict([STORE_WAIT])
        self.environment = {
            **kept,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "VIRTUAL_ENV": str(BIN.parent),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(token),
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def __enter__(self) -> Self:
        return patiently(self._start, self.__exit__)

    def _start(self) -> Self:
        self._held = ExitStack()
        sockets = self._held.enter_context(tempfile.TemporaryDirectory(prefix="ray-"))  # short paths
        dashboard, agent, client = self._held.enter_context(held_ports(3))
        self.url = f"http://127.0.0.1:{dashboard}"
        options = {
            "node-ip-address": "127.0.0.1",
            "port": 0,
            "dashboard-host": "127.0.0.1",
            "dashboard-port": dashboard,
            "dashboard-agent-listen-port": agent,
            "ray-client-server-port": client,
            "num-cpus": 8,
            "num-gpus": 0,
            "resources": json.dumps({"shard": 2}),
            "object-store-memory": 128 * 2**20,
            "temp-dir": sockets,
        }
        self._log = self._held.enter_context((self._home / "head.log").open("w+"))
        self._process = subprocess.Popen(
            [
                BIN / "ray",
                "start",
                "--head",
                "--block",
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._log.write(line)
            if found := re.search(r"--address='([\d.:]+)'", line):
                self.address = found[1]
                return self
        self._process.wait()
        raise RuntimeError((self._home / "head.log").read_text())

    def __exit__(self, *_: object) -> None:
        everyone = {*family(self._process.pid), *_session(self._process.pid)}
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._await_end_of(everyone, _GRACE_S)
        for pid in filter(is_alive, everyone):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._await_end_of(everyone, _GRACE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._held.close()

    @staticmethod
    def _await_end_of(pids: set[int], most_s: float) -> None:
        end = time.monotonic() + most_s
        while any(is_alive(pid) for pid in pids) and time.monotonic() < end:
            time.sleep(0.1)  # polls; nothing depends on its length

    def submit(self, *entry: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """`ray job submit` of this repository; it ends with the job."""
        command = [
            *(str(BIN / "ray"), "job", "submit", "--address", self.url, "--working-dir", "."),
            *("--runtime-env-json", json.dumps({"env_vars": variables}), "--", *entry),
        ]
        return subprocess.run(
            command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False, timeout=600
        )
