"""A client whose disk is full, wherever that meets it: the file is named with a remedy, exit code 43."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from e2e import fleet

if TYPE_CHECKING:
    from penrose_ray.crypto.keyfile import DesignKeys

ALONE = ("unshare", "--user", "--map-root-user", "--mount")
PAGES = (*range(40), 48, 64, 96, 128, 4096)
SPOOL = 43


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, design_keys: DesignKeys) -> tuple[Path, list[str]]:
    """Where its disk is mounted, and `client run` with all that it can keep on it."""
    if shutil.which(ALONE[0]) is None or subprocess.run([*ALONE, "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    home = tmp_path_factory.mktemp("client")
    (home / "disk").mkdir()
    fleet.write_trace(home / "trace.json.gz", seed=3, rounds=2)
    counters = fleet.counters_of(home / "trace.json.gz")
    (home / "a.task").write_bytes(fleet.signed_task(design_keys, counters).encode())
    (home / "policy.toml").write_text(
        "allow_demo = true\nleast_sampling_interval = 1\nleast_contributors = 1\nmax_overhead_percent = 100\n"
    )
    options = [
        "client", "run", home / "a.task", "--gateway", "http://127.0.0.1:9", "--policy", home / "policy.toml",
        "--trace", home / "trace.json.gz", "--state", home / "disk" / "state", "--gap-s", 0,
    ]  # fmt: skip
    return home / "disk", [str(each) for each in options]


def test_a_full_disk_is_named_with_its_file_and_a_remedy(client: tuple[Path, list[str]]) -> None:
    disk, options = client
    more = ["--receipts", str(disk / "receipts")]
    sizes = ",".join(map(str, PAGES))
    runner = [*ALONE, sys.executable, str(Path(__file__).with_name("full_disk.py"))]
    command = [*runner, str(disk), "state", sizes, *options, *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [pages for pages, _, _ in found] == list(PAGES)
    named = set()
    for pages, code, said in found:
        assert code in {0, SPOOL}, (pages, said)
        if code:
            file = re.search(rf"error: .*{disk}/([\w/.]+) .*\n  remedy: .*[Ff]ree space", said)
            assert file, (pages, said)
            named.add(file[1])
    assert found[-1][1] == 0, found[-1]
    state = ("client.pid", "client.source", "sent.sqlite", "spool.key", "spool.sqlite")
    assert named == {*(f"state/{each}" for each in state), "receipts"}
