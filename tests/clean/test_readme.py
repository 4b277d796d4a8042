"""The README's code, from the first line to the last, in a clean clone; and where its links lead."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING

import pytest
from clean.checkout import ROOT, checkout, clean_environment, variables, without_network

from penrose_ray.crypto.keyfile import write_keys

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(console|python|sql)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
ELSEWHERE = ("ray job submit", "uv run", "penrose task fetch")
"""Tested with a cluster of their own in tests/jobs, with a gateway in tests/cli."""
PROGRAM = "from penrose_ray.actors.programs import stencil\nstencil.run(lambda: False, max_steps=200)\n"


class Reader:
    """Somebody who does what the README says, in a clone."""

    def __init__(self, home: Path) -> None:
        self.clone = checkout(home / "penrose-ray")
        self.environment = variables(clean_environment(self.clone / ".venv"), home)
        self.environment["PENROSE__SERVICE__PORT"] = "0"
        self._service: subprocess.Popen[str] | None = None

    def run(self, line: str) -> str:
        """A line of a console block, its placeholders filled in; what it prints."""
        line = line.replace("http://HOST:8443", "http://127.0.0.1:9")
        if line.startswith("git clone"):
            return ""  # done, from the working tree
        if re.match(r"penrose up ", line):
            return self._start(line)
        if "--dry-run" in line:
            return self._until(line, "watching")
        shell = ["/bin/bash", "-ec", line]
        done = subprocess.run(
            shell, cwd=self.clone, env=self.environment, capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        if done.returncode and without_network(said):
            pytest.skip("no package index: make install cannot be tried")
        assert done.returncode == 0, f"{line}\n{said}"
        return said

    def _open(self, line: str, sign: str) -> tuple[subprocess.Popen[str], str]:
        shell = ["/bin/bash", "-c", f"exec {line.partition('#')[0]}"]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        process = subprocess.Popen(
            shell, cwd=self.clone, env=self.environment, stderr=pipe, stdout=null, text=True
        )
        assert process.stderr is not None
        said = ""
        for each in process.stderr:
            said += each
            if sign in each:
                return process, said
        process.wait()
        raise AssertionError(f"{line}\n{said}")

    def _start(self, line: str) -> str:
        self._service, said = self._open(line, "reports are taken")
        return said

    def _until(self, line: str, sign: str) -> str:
        process, said = self._open(line, sign)
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=300)
        assert process.returncode == 0, rest
        return said

    def stopped(self) -> int | None:
        """Exit code of the service that was started."""
        if self._service is None:
            return None
        _, _ = self._service.communicate(timeout=300)
        return self._service.returncode

    def end(self) -> None:
        """Leave nothing behind."""
        if self._service is not None and self._service.poll() is None:
            os.kill(self._service.pid, signal.SIGTERM)
            self._service.communicate(timeout=300)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    pytest.importorskip("pyopencl", reason="make run needs OpenCL")
    made = Reader(tmp_path_factory.mktemp("home"))
    yield made
    made.end()


def lines(block: str) -> list[str]:
    joined = block.replace("\\\n", " ")
    return [line.removeprefix("$ ") for line in joined.splitlines() if line.startswith("$ ")]


def test_the_readmes_code_runs_in_a_clean_clone(reader: Reader, design_keys: DesignKeys) -> None:
    done = []
    for language, block in BLOCKS:
        if language == "console":
            for line in lines(block):
                if line.startswith(ELSEWHERE):
                    continue
                if "fleet.task" in line and not (reader.clone / "fleet.task").exists():
                    write_keys(reader.clone / "task.key", design_keys, passphrase=None)
                    reader.run("penrose task sign configs/laptop.toml --keys task.key --out fleet.task")
                    (reader.clone / "train.py").write_text(PROGRAM)
                reader.run(line)
                done.append(line.split()[0])
        elif language == "python":
            (reader.clone / "block.py").write_text(block)
            reader.run("python block.py")
            done.append("python")
        else:
            journals = list((reader.clone / "out" / "state").rglob("shard-*.sqlite"))
            assert journals
            for path in journals:
                db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
                db.execute(block).fetchall()
                db.close()
            done.append("sql")
    assert reader.stopped() == 0, "penrose down ends what penrose up started"
    assert (reader.clone / "out" / "report.html").stat().st_size > 10_000
    assert {"make", "penrose", "python", "sql"} <= set(done)


def test_what_leaves_my_gpu_is_one_click_away() -> None:
    (target,) = re.findall(r"\[what leaves my GPU\?\]\(([^)]+)\)", README)
    page = (ROOT / target).read_text()
    assert "--dry-run" in page
    assert "never leaves" in page


@pytest.mark.parametrize("address", sorted(set(re.findall(r"\]\((https?://[^)\s]+)\)", README))))
def test_a_link_to_the_world_is_alive(address: str) -> None:
    request = urllib.request.Request(address, method="HEAD", headers={"User-Agent": "link check"})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310 - http(s) by the pattern
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
    except (OSError, HTTPException) as error:
        pytest.skip(f"no network: {error}")
    assert status not in (404, 410), address
