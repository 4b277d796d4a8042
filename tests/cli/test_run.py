"""`penrose run` as a user meets it: a whole run, and what goes wrong before or in it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
from waiting import program

from penrose_ray.actors.processes import family, is_alive
from penrose_ray.crypto.keyfile import write_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penrose_ray.crypto.keyfile import DesignKeys

ROOT = Path(__file__).parents[2]
LAPTOP = ROOT / "configs" / "laptop.toml"


@pytest.fixture
def home(tmp_path: Path, design_keys: DesignKeys) -> Path:
    """A folder with a key, and a policy beside the configuration's relative path."""
    (tmp_path / "configs").mkdir()
    policy = (ROOT / "configs" / "policy.toml").read_text().replace("contributors = 10", "contributors = 3")
    (tmp_path / "configs" / "policy.toml").write_text(policy)
    (tmp_path / "out" / "keys").mkdir(parents=True)
    write_keys(tmp_path / "out" / "keys" / "design_server.key", design_keys, passphrase=None)
    return tmp_path


def penrose(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "penrose_ray.cli.app", *arguments],
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def run(home: Path, *overrides: str, form: str = "table") -> subprocess.CompletedProcess[str]:
    options = [word for override in overrides for word in ("--set", override)]
    return penrose(home, "run", str(LAPTOP), "--format", form, *options)


REPLAY_ONLY = (
    'clients=[{kind="replay", trace="bundled", repeat=4}]',
    "service.shards=1",
    "run.seconds=120",  # it ends when the replay has
    "task.sampling_interval=20",
)

LONG_REPLAY = 'clients=[{kind="replay", trace="bundled", launches_per_s=200}]'


def test_a_run_prints_the_table_and_writes_release_report_and_summary(home: Path) -> None:
    pytest.importorskip("pyopencl", reason="the live clients need pyopencl")
    done = run(home, "run.seconds=20", "task.min_contributors=3", form="json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    summary = json.loads((home / "out" / "run.json").read_text())

    assert len({row["class_id"] for row in rows}) >= 3, "two live programs and a replay"
    assert {row["counter"].split(" ")[0] for row in rows} == {"duration", "queue_delay", "work_rate"}
    assert all(row["reports"] >= row["real_reports"] > 0 for row in rows)
    assert all(row["mean"] > 0 and row["p95"] > 0 for row in rows)
    assert summary["reports_opened"] == sum(row["reports"] for row in rows)
    assert summary["samples"] >= sum(row["samples"] for row in rows) / 3
    assert summary["discarded"] == []
    assert 0 < summary["peak_pss_mb"] < 3000
    assert set(summary["seconds"]) == {"start", "collect", "release", "open", "report"}
    assert (home / "out" / "release.parquet").stat().st_size > 0
    assert "DEMO" in (home / "out" / "report.html").read_text()
    assert len(re.findall(r"launches .* reports accepted", done.stderr)) >= 1


def test_the_key_is_made_for_its_owner_only_and_a_second_run_goes_on(tmp_path: Path, home: Path) -> None:
    (home / "out" / "keys" / "design_server.key").unlink()
    first = run(home, *REPLAY_ONLY)
    again = run(home, *REPLAY_ONLY)

    assert (first.returncode, again.returncode) == (0, 0), first.stderr + again.stderr
    assert "DEMO" in again.stdout
    key = tmp_path / "out" / "keys" / "design_server.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_too_few_reports_are_never_opened(home: Path) -> None:
    done = run(home, *REPLAY_ONLY, "task.min_contributors=5000")
    assert done.returncode == 60
    assert "k = 5000" in done.stderr
    assert "remedy: " in done.stderr
    assert not (home / "out" / "release.parquet").exists()


def test_a_taken_port_ends_with_its_own_code(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run(home, *REPLAY_ONLY, f"service.port={port}")
    assert done.returncode == 11
    assert str(port) in done.stderr
    assert "docs/exit-codes.md#port-in-use" in done.stderr


def test_a_key_that_others_can_read_is_refused(home: Path) -> None:
    (home / "out" / "keys" / "design_server.key").chmod(0o644)
    done = run(home, *REPLAY_ONLY)
    assert done.returncode == 31
    assert "chmod" in done.stderr


def test_a_missing_key_is_named(home: Path) -> None:
    done = run(home, *REPLAY_ONLY, "design_server.key_file=out/other.key", "design_server.create_key=false")
    assert done.returncode == 30
    assert "other.key" in done.stderr


def test_a_policy_that_forbids_demos_stops_the_client(home: Path) -> None:
    (home / "configs" / "policy.toml").write_text("least_sampling_interval = 10\nleast_contributors = 1\n")
    done = run(home, *REPLAY_ONLY)
    assert done.returncode == 14
    assert "allow_demo = true" in done.stderr


def test_an_unknown_key_is_named_with_its_line_before_anything_starts(home: Path) -> None:
    config = home / "bad.toml"
    config.write_text(LAPTOP.read_text().replace("shards = 2", "shard = 2"))
    line = next(n for n, text in enumerate(config.read_text().splitlines(), 1) if "shard = 2" in text)

    done = penrose(home, "run", str(config))

    assert done.returncode == 10
    assert f"line {line}" in done.stderr
    assert "Did you mean 'shards'?" in done.stderr
    assert "Traceback" not in done.stderr


@contextmanager
def running_until(home: Path, moment: str) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """A run in a session of its own that has said `moment`, and the rest of what it says."""
    with program(
        [sys.executable, "-m", "penrose_ray.cli.app", "run", LAPTOP, "--set", LONG_REPLAY],
        cwd=home,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert next(line for line in process.stderr if moment in line)
        yield process, process.stderr


@pytest.mark.parametrize("to_group", [False, True], ids=["to the process", "from the terminal"])
@pytest.mark.parametrize("moment", ["starting Ray", "collecting for"])
def test_ctrl_c_ends_soon_and_leaves_no_process(home: Path, moment: str, *, to_group: bool) -> None:
    with running_until(home, moment) as (process, said):
        children = family(process.pid)
        (os.killpg if to_group else os.kill)(process.pid, signal.SIGINT)
        rest = said.read()
        assert process.wait(timeout=120) == 130, rest
    assert "interrupted" in rest
    assert [pid for pid in children if is_alive(pid)] == []


@pytest.mark.parametrize(
    ("override", "code", "word"),
    [
        ("task.similarty=0.9", 10, "Did you mean 'similarity'"),
        ("policy_file=nowhere.toml", 10, "nowhere.toml"),
        ("service.state_dir=configs/policy.toml/below", 10, "service.state_dir"),
        ("design_server.releases_dir=configs/policy.toml/below", 10, "design_server.releases_dir"),
        ('clients=[{kind="replay", trace="missing.json"}]', 10, "missing.json"),
        ("service.ray_address=127.0.0.1:9", 12, "127.0.0.1:9"),
        ("design_server.passphrase_variable=NO_SUCH_VARIABLE", 10, "NO_SUCH_VARIABLE"),
    ],
)
def test_what_is_wrong_in_the_surroundings_is_named(home: Path, override: str, code: int, word: str) -> None:
    done = run(home, "service.shards=1", override)
    assert done.returncode == code, done.stderr
    assert word in done.stderr
    assert "remedy: " in done.stderr
    assert "Traceback" not in done.stderr


def test_sigterm_ends_a_run_like_ctrl_c(home: Path) -> None:
    with running_until(home, "collecting for") as (process, said):
        children = family(process.pid)
        process.send_signal(signal.SIGTERM)
        rest = said.read()
        assert process.wait(timeout=120) == 130, rest
    assert [pid for pid in children if is_alive(pid)] == []
