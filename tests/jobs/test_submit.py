"""`ray job submit` of the scripts, to a head that asks for a token."""

from __future__ import annotations

import csv
import http.client
import io
import json
import subprocess
import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest
from e2e.service_config import settings_in
from jobs.head import ROOT, TOKEN, RayHead

from penrose_ray.analyse.frames import open_release
from penrose_ray.errors import PlacementError
from penrose_ray.sim.catalogue import run
from penrose_ray.sim.settings import load_simulation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

pytestmark = pytest.mark.slow
pytest.importorskip("aiohttp_cors", reason="the job server comes with penrose-ray[cluster]")
UV = ("uv", "run", "--active", "--no-sync")
PAPER = "configs/coverage-paper.toml"


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayHead]:
    with RayHead(tmp_path_factory.mktemp("head")) as started:
        yield started


def status_without(head: RayHead, headers: dict[str, str]) -> int:
    request = urllib.request.Request(f"{head.url}/api/jobs/", headers=headers)  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request) as answer:  # noqa: S310 - as above
            assert isinstance(answer, http.client.HTTPResponse)
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_nobody_submits_without_the_token(head: RayHead) -> None:
    assert status_without(head, {}) == 401
    assert status_without(head, {"Authorization": f"Bearer {'b2' * 32}"}) == 403
    assert status_without(head, {"Authorization": f"Bearer {TOKEN}"}) == 200


def test_a_job_imports_what_was_uploaded_and_little_is(head: RayHead) -> None:
    code = (
        "import os, penrose_ray.actors as a;"
        "sizes = [os.path.getsize(os.path.join(at, n)) for at, _, names in os.walk('.') for n in names];"
        "print('SEEN', a.__file__, sum(sizes), sorted(os.listdir()))"
    )
    done = head.submit("python", "-c", code)
    assert done.returncode == 0, done.stdout + done.stderr
    seen = next(line for line in done.stdout.splitlines() if line.startswith("SEEN"))
    _, module, size, *names = seen.split()
    assert "working_dir_files" in module
    assert int(size) < 8e6
    assert not {"'tests',", "'docs',", "'notebooks',", "'.venv',"} & set(names)


@pytest.mark.parametrize("launcher", [("python",), UV], ids=["python", "uv"])
def test_coverage_comes_back_as_it_is_computed_here(
    head: RayHead, tmp_path: Path, launcher: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    done = head.submit(
        *launcher, "scripts/coverage.py", "--config", PAPER, "--format", "csv", "--out", str(out)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    table = run(load_simulation(ROOT / PAPER)).table
    printed = done.stdout[done.stdout.index("apps,mix,hours") :].splitlines()[: len(table) + 1]
    assert [float(row["hours"]) for row in csv.DictReader(printed)] == list(table["hours"])
    kept = csv.DictReader(io.StringIO((out / "table.csv").read_text()))
    assert [float(row["hours"]) for row in kept] == list(table["hours"])


def test_a_collection_runs_in_the_cluster_and_brings_its_release_back(
    head: RayHead, tmp_path: Path, design_keys: DesignKeys
) -> None:
    settings_in(tmp_path, design_keys)
    config = tmp_path / "service.toml"
    clients = '\n[[clients]]\nkind = "replay"\ntrace = "bundled"\nrepeat = 4\n'
    text = config.read_text().replace('source = "kineto"', 'source = "opencl"')
    config.write_text(text.replace('["unknown", "nvidia"]', '["pocl"]') + clients)
    to = tmp_path / "brought"
    done = head.submit(
        *("python", "scripts/collect.py", "--config", str(config), "--to", str(to), "--format", "json"),
        *("--set", f"run.out_dir={tmp_path / 'out'}", "--set", "run.seconds=120"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((to / "run.json").read_text())
    assert found["real_reports_opened"] >= 3
    assert open_release(to / "release.parquet")["count"].sum() > 0
    assert "<html" in (to / "report.html").read_text()


def test_a_benchmark_prints_its_figures(head: RayHead) -> None:
    done = head.submit("python", "scripts/bench.py", "--name", "capture", "--rounds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith('{"benchmark"'))
    found = json.loads(line)
    assert found["benchmark"] == "capture"
    assert found["machine"]["cores"] >= 1


def test_a_mistake_is_named_and_fails_the_job(head: RayHead) -> None:
    done = head.submit("python", "scripts/coverage.py", "--config", "configs/nothing.toml")
    assert done.returncode == 1
    assert "There is no file configs/nothing.toml." in done.stdout


def test_a_service_without_the_token_is_told_what_is_missing(
    head: RayHead, tmp_path: Path, design_keys: DesignKeys
) -> None:
    settings_in(tmp_path, design_keys)
    without = {name: value for name, value in head.environment.items() if not name.startswith("RAY_AUTH")}
    done = subprocess.run(
        [sys.executable, "-m", "penrose_ray.cli.app", "up", str(tmp_path / "service.toml"),
         "--set", f'service.ray_address="{head.address}"'],
        cwd=ROOT, env={**without, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == PlacementError.exit_code
    assert "set RAY_AUTH_MODE=token" in done.stderr
    assert "Traceback" not in done.stderr
