"""Each notebook runs from top to bottom in a fresh interpreter, on small data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
EXPECTED = {
    "01_quick_start": ["3 classes"],
    "02_coverage_planning": ["seen with 99.995%", "bin of 10 %: 654,567", "epsilon 2: 36,0"],
    "03_fleet_insight": ["planted 38%, inside: True", "planted 29%, inside: True", "0 suspects"],
    "04_privacy_and_error": [r"99\.[234]% of the bins within 1 %", "sigma = 28,197 samples"],
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


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(FOLDER), "MPLBACKEND": "Agg", "TMPDIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code_of(notebook)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    for text in EXPECTED.get(notebook.stem, ()):
        assert re.search(text, run.stdout)
