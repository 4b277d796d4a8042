"""The wheel and the sdist: what is in them, installed where nothing of this checkout is seen."""

from __future__ import annotations

import json
import shutil
import subprocess
import zipfile
from typing import TYPE_CHECKING

import pytest
from clean.checkout import PYTHON, ROOT, checkout, clean_environment, variables, without_network

import penrose_ray as pr

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
pytest.importorskip("build", reason="artefacts are built by penrose-ray[release]")


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that is built from it."""
    source = checkout(tmp_path_factory.mktemp("source") / "penrose-ray")
    built = subprocess.run(
        [PYTHON, "-m", "build", "--outdir", "dist"], cwd=source, capture_output=True, text=True, check=False
    )
    if built.returncode and without_network(built.stdout + built.stderr):
        pytest.skip("no package index: setuptools cannot be had for the build")
    assert built.returncode == 0, built.stdout + built.stderr
    return source / "dist"


def installed(artefact: Path, folder: Path) -> tuple[Path, dict[str, str]]:
    """`bin` and variables of a clean environment with the artefact."""
    programs = clean_environment(folder / "venv")
    environment = variables(programs, folder)
    command = [
        programs / "pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-deps",
        "--ignore-installed",
    ]
    done = subprocess.run([*command, artefact], env=environment, capture_output=True, text=True, check=False)
    if done.returncode and without_network(done.stdout + done.stderr):
        pytest.skip("no package index: setuptools cannot be had for the build")
    assert done.returncode == 0, done.stdout + done.stderr
    return programs, environment


def output(command: list[object], environment: dict[str, str], folder: Path) -> str:
    words = [str(each) for each in command]
    done = subprocess.run(words, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(dist: Path) -> None:
    (wheel,) = dist.glob(f"penrose_ray-{pr.__version__}-py3-none-any.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        f"penrose_ray/{path.relative_to(ROOT / folder).as_posix()}" if not above else
        f"penrose_ray/{folder}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, above in (("penrose_ray", False), ("actors", True), ("crypto", True), ("sim", True))
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }  # fmt: skip
    assert names == wanted
    assert "penrose_ray/py.typed" in names


def test_the_main_job_runs_from_the_wheel_alone(dist: Path, tmp_path: Path) -> None:
    programs, environment = installed(next(dist.glob("*.whl")), tmp_path)
    where = output(
        [programs / "python", "-c", "import penrose_ray; print(penrose_ray.__file__)"], environment, tmp_path
    )
    assert where.startswith(str(tmp_path / "venv"))
    assert output([programs / "penrose", "version"], environment, tmp_path) == f"{pr.__version__}\n"
    output([programs / "pip", "check", "--disable-pip-version-check"], environment, tmp_path)

    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    command = [
        programs / "penrose",
        "run",
        "configs/laptop.toml",
        "--set",
        "run.seconds=25",
        "--format",
        "json",
    ]
    rows = json.loads(output(command, environment, tmp_path))
    assert rows
    summary = json.loads((tmp_path / "out" / "run.json").read_text())
    assert summary["sums_opened"] == len(rows)
    assert "<svg" in (tmp_path / "out" / "report.html").read_text()


def test_the_sdist_installs_and_reads_a_trace(dist: Path, tmp_path: Path) -> None:
    programs, environment = installed(next(dist.glob("*.tar.gz")), tmp_path)
    place = "import penrose_ray.capture; print(penrose_ray.capture.__path__[0])"
    folder = output([programs / "python", "-c", place], environment, tmp_path).strip()
    command = [programs / "penrose", "inspect", f"{folder}/samples/sort.json.gz", "--format", "json"]
    (found,) = json.loads(output(command, environment, tmp_path))
    assert found["kernels"] == 15_600


def test_the_bill_of_materials_names_every_dependency_with_its_version(tmp_path: Path) -> None:
    tool = shutil.which("cyclonedx-py", path=str(ROOT / ".venv" / "bin")) or shutil.which("cyclonedx-py")
    if tool is None:
        pytest.skip("the bill is made by cyclonedx-bom of penrose-ray[release]")
    bill = tmp_path / "sbom.json"
    command = [tool, "environment", "--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible"]
    subprocess.run([*command, "--output-file", str(bill), PYTHON], check=True, capture_output=True)
    found = json.loads(bill.read_text())
    versions = {each["name"].lower(): each["version"] for each in found["components"]}
    assert found["bomFormat"] == "CycloneDX"
    assert found["metadata"]["component"]["name"] == "penrose-ray"
    for name in ("ray", "gmpy2", "cryptography", "msgspec", "numpy", "pyarrow"):
        assert versions[name]
