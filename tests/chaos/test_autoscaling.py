"""Under load the service gets shards and the cluster gets nodes; when the load goes, both go."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penrose_ray.crypto.keyfile import write_keys

if TYPE_CHECKING:
    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]
ALONE = ["unshare", "--pid", "--net", "--mount", "--fork", "--kill-child", "--mount-proc"]


def refused() -> str:
    """Why this machine gives no namespaces; empty when it does."""
    if not shutil.which("unshare"):
        return "there is no unshare"
    tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no private namespaces: {tried.stderr.strip()}"


def test_the_autoscaler_adds_nodes_for_shards_and_removes_them(
    tmp_path: Path, design_keys: DesignKeys
) -> None:
    if reason := refused():
        pytest.skip(reason)
    write_keys(tmp_path / "keys", design_keys, passphrase=None)
    paths = [str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")]
    with tempfile.TemporaryDirectory(prefix="ray-") as ray_folder:  # the names of Ray's sockets must be short
        run = subprocess.run(
            [*ALONE, sys.executable, "-m", "chaos.autoscaled", str(tmp_path), ray_folder],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                "RAY_AUTH_MODE": "disabled",
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert run.returncode == 0, run.stderr[-4000:]
    found = json.loads(run.stdout.splitlines()[-1])
    assert found["shards_and_nodes"] == [[1, 1], [3, 3], [1, 1]]
    assert found["bins"] == [[1] * 128] * 2
    assert [delta for delta, _ in found["decisions"]] == [2, -1, -1]
    assert found["decisions"][0][1] == "busy 0.95 over 300 s, 40 waiting"
