"""Each notebook runs from top to bottom in a fresh interpreter, on small data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from jobs.head import RayHead

from penrose_ray.actors.ray_start import patiently

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
WARNINGS = ("-W", "error", "-W", "ignore::FutureWarning:ray._private.worker")
"""Everything is an error but what Ray says of its own future."""
LOCAL = {"RAY_ADDRESS": "", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
HEADS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
EXPECTED = {
    "01_quick_start": ["3 classes"],
    "02_coverage_planning": [
        "seen with 99.995%",
        "bin of 10 %: 654,567",
        "epsilon 2: 204,1",
        r"alike: 2\.9\d h simulated, 2\.90 h by formula",
        "first to break: Tor network",
    ],
    "03_fleet_insight": [
        "planted 38%, inside: True",
        "planted 29%, inside: True",
        r"training: 20% of the samples, (49|50)\.\d% of the launches, planted 50%",
        "0 suspects",
        "classes: .*inference, training",
    ],
    "04_privacy_and_error": [
        r"99\.[234]% of the bins within 1 %",
        "sigma = 159,505 samples",
        r"1,000: 204\.17% by theory, 20[2-6]\.\d\d% simulated",
        r"100,000: 2\.04% by theory, 2\.0[2-6]% simulated",
        r"1(8[1-9]|9\d) of 200 intervals hold the truth",
        "noise 0: .*inside: True",
        "noise 200: .*inside: True",
        "p95 with noise 0: .*inside: True",
        "p95 with noise 200: 2[01].*inside: True",
    ],
    "05_bring_your_own_traces": ["launches of"],
}


def code_of(notebook: Path) -> str:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return "\n".join("".join(each["source"]) for each in cells if each["cell_type"] == "code")


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_output(notebook: Path) -> None:
    content = json.loads(notebook.read_text(encoding="utf-8"))
    assert content["nbformat"] == 4
    for cell in content["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def run(notebook: Path, folder: Path, **variables: str) -> str:
    """What the notebook prints, run from top to bottom in a process of its own."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{FOLDER}:{FOLDER.parent}",
        "PENROSE_CONFIGS": str(FOLDER.parent / "configs"),
        "MPLBACKEND": "Agg",
        "TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        **variables,
    }
    done = subprocess.run(
        [sys.executable, *WARNINGS, "-c", code_of(notebook)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="nb-") as folder:  # Ray's sockets need a short path
        shown = patiently(lambda: run(notebook, Path(folder), **LOCAL), lambda: None)
    for text in EXPECTED.get(notebook.stem, ()):
        assert re.search(text, shown)


@pytest.mark.slow
def test_a_notebook_joins_the_cluster_that_is_there(tmp_path: Path) -> None:
    pytest.importorskip("aiohttp_cors", reason="the head's dashboard comes with penrose-ray[cluster]")
    notebook = FOLDER / "02_coverage_planning.ipynb"
    with RayHead(tmp_path) as head:
        variables = {**head.environment, "RAY_ADDRESS": head.address}
        shown = run(notebook, tmp_path, **{name: variables[name] for name in (*HEADS, "RAY_ADDRESS")})
    for text in EXPECTED[notebook.stem]:
        assert re.search(text, shown)
    assert f"Ray at {head.address}" in shown
