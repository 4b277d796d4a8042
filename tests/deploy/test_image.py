"""The Dockerfile: linted, two stages, not root, and it copies what is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
STEPS = [tuple(line.split(maxsplit=1)) for line in LINES if line and not line.startswith("#")]


def test_hadolint_has_nothing_to_say() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run(
        [linter, ROOT / "Dockerfile"], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_runs_is_a_stage_of_its_own_without_root() -> None:
    stages = [position for position, (name, _) in enumerate(STEPS) if name == "FROM"]
    assert len(stages) == 2
    last = STEPS[stages[1] :]
    (user,) = [rest for name, rest in last if name == "USER"]
    uid = user.split(":")[0]
    assert uid.isdecimal(), "Kubernetes checks runAsNonRoot by number"
    assert int(uid) >= 1000
    copies = [rest for name, rest in last if name == "COPY"]
    assert all("--from=build" in rest or rest.split()[0] in ("scripts", "configs") for rest in copies)


def test_the_extras_that_it_installs_exist() -> None:
    (install,) = [rest for name, rest in STEPS if "pip install" in rest]
    extras = install.partition(".[")[2].partition("]")[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])


def test_the_builder_gets_what_a_wheel_is_made_of() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert {"pyproject.toml", "README.md", "LICENSE", "penrose_ray", "actors", "crypto", "sim"} <= set(kept)
    for name in kept:
        assert (ROOT / name).exists(), name
