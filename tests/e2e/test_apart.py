"""Aggregation service and design server apart: two directories, the key in the second, files between them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq
import pytest
from e2e import fleet, up

from penrose_ray.clock import SystemClock
from penrose_ray.crypto.keyfile import write_keys
from penrose_ray.release.audit import read_audit
from penrose_ray.task import verify
from penrose_ray.transport.http import HttpUploader

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow

CONFIG = """\
policy_file = "{home}/policy.toml"

[service]
shards = 1
handover_every_s = 0
state_dir = "{home}/state"

[design_server]
task_file = "{home}/fleet.task"
releases_dir = "{home}/releases"
"""


def penrose(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penrose_ray.cli.app", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture
def design(tmp_path: Path, design_keys: DesignKeys) -> Path:
    """The design server's machine: the key, and the task that it signed."""
    home = tmp_path / "design"
    home.mkdir()
    write_keys(home / "design_server.key", design_keys, passphrase=None)
    fleet.write_trace(tmp_path / "trace.json.gz", seed=3, rounds=4)
    task = fleet.signed_task(design_keys, fleet.counters_of(tmp_path / "trace.json.gz"), batch_s=fleet.LONG_S)
    (home / "fleet.task").write_bytes(task.encode())
    return home


@pytest.fixture
def service(tmp_path: Path, design: Path) -> Iterator[up.Service]:
    """The aggregation service's machine: the signed task and no key."""
    home = tmp_path / "service"
    home.mkdir()
    shutil.copy(design / "fleet.task", home)
    (home / "policy.toml").write_text(
        "allow_demo = true\nleast_sampling_interval = 1\nleast_contributors = 1\n"
    )
    (home / "service.toml").write_text(CONFIG.format(home=home))
    started = up.Service(home / "service.toml")
    yield started
    if started.process.poll() is None:
        started.process.terminate()
        assert started.wait() == 0


def sent(url: str, trace: Path, signed: bytes) -> fleet.Truth:
    """What a client has sealed and sent, in the clear."""
    truth, task = fleet.Truth(), verify(signed)
    uploader = HttpUploader(url, task.task_id)
    client, outbox = fleet.replay_client(trace, task, uploader, truth, clock=SystemClock(), seed=3)
    fleet.play(client)
    assert outbox.flush()
    assert outbox.counts.refused == outbox.counts.dropped == 0
    return truth


def test_sums_are_equal_and_the_key_never_touches_the_service(
    service: up.Service, design: Path, tmp_path: Path, design_keys: DesignKeys
) -> None:
    home, config = tmp_path / "service", tmp_path / "service" / "service.toml"
    truth = sent(service.url, tmp_path / "trace.json.gz", (design / "fleet.task").read_bytes())
    closed = penrose("release", "close", config, "--format", "json")
    (batch,) = json.loads(closed.stdout)
    assert batch["reports"] == sum(truth.reports.values())

    alone = penrose("release", "open", config)
    assert (alone.returncode, alone.stdout) == (10, "")
    assert "has no design server" in alone.stderr
    assert penrose("run", config).returncode == 10
    (signer,) = [line.split()[-1] for line in service.lines if "releases are signed by" in line]

    copy = design / "releases"
    shutil.copytree(home / "releases", copy)
    papers = ("--task", design / "fleet.task", "--ledger-signer", signer, "--out", design / "opened")
    command = ("release", "open", copy, "--keys", design / "design_server.key", *papers, "--format", "json")
    opened = penrose(*command)
    assert opened.returncode == 0, opened.stderr
    (row,) = json.loads(opened.stdout)
    assert (row["reports"], row["discarded"]) == (batch["reports"], 0)
    got = sorted((each["counter_set"], each["bins"]) for each in pq.read_table(row["path"]).to_pylist())
    names = [each.name for each in verify((design / "fleet.task").read_bytes()).counter_sets]
    wanted = sorted((names[place], counts.tolist()) for (_, place), counts in truth.counts.items())
    assert len(wanted) == 2, "two programs"
    assert got == wanted

    assert json.loads(penrose(*command).stdout) == [], "all of it is opened"
    (handover,) = copy.glob("*.handover")
    repeated = penrose(*command[:2], handover, *command[3:])
    assert repeated.returncode == 71
    assert "was opened before" in repeated.stderr

    assert penrose("down", config).returncode == 0
    assert service.wait() == 0
    told = read_audit((home / "state" / "audit.jsonl").read_bytes(), "audit.jsonl")
    assert [each.detail for each in told if each.event == "command"] == ["release", "down"]
    primes = [prime.to_bytes(192, "big") for prime in design_keys.paillier.factors()]
    files = [each for each in home.rglob("*") if each.is_file()]
    assert len(files) > 8
    for file in files:
        raw = file.read_bytes()
        assert not any(prime in raw or prime[::-1] in raw for prime in primes), file
    assert not list(home.rglob("*.parquet"))
    assert np.any(wanted[0][1])
