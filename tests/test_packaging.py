"""What a wheel must hold beside modules; versions, pins and types."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import penrose_ray as pr

ROOT = Path(__file__).parents[1]
CODE = {".py", ".pyi"}


def test_every_data_file_of_the_packages_is_declared() -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git lists the data files")
    listed = subprocess.run([git, "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a git checkout")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    packages = [
        ROOT / Path(name).parent for name in listed.stdout.splitlines() if name.endswith("/__init__.py")
    ]
    kept: set[Path] = set()
    for package, names in declared.items():
        folders = packages if package == "*" else [ROOT / package.replace(".", "/")]
        kept.update(path.resolve() for folder in folders for name in names for path in folder.glob(name))
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if name.split("/")[0] not in ("penrose_ray", "crypto", "actors", "sim") or path.is_symlink():
            continue
        assert path.suffix in CODE or path.resolve() in kept, f"{name} is not in package-data"


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ELSEWHERE = {"gpu", "cupti", "torch", "bench", "tpm"}
"""Extras for other machines than the one that makes constraints.txt."""


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize(
    "extra", ["", *(each for each in PROJECT["optional-dependencies"] if each not in ELSEWHERE)]
)
def test_constraints_pin_what_is_asked_for_inside_its_range(extra: str) -> None:
    asked = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    for requirement in map(Requirement, asked):
        if requirement.name == "penrose-ray":
            continue
        version = pins().get(canonicalize_name(requirement.name), "")
        assert version, f"make constraints: {requirement.name} is not in constraints.txt"
        assert requirement.specifier.contains(version), f"make constraints: {requirement} is not {version}"


PRIVATE = (
    "keys/design_server.key",
    "keys/metrics.token",
    "state/keys/ledger.key",
    "state/keys/gateway-tls.pem",
    "state/1f2e3d/shard-0.sqlite",
    "state/1f2e3d/shard-0.sqlite-wal",
    "state/audit.jsonl",
    "releases/1f2e3d.ledger",
    "releases/1f2e3d-7.handover",
    "releases/labels.json",
    "shares/share-2.key",
    "opened/1f2e3d.notes",
    "out/keys/design_server.key",
    "configs/issuer.key",
    "scripts/issuer.sqlite",
    "penrose_ray/issuer-tls.key",
    ".design_server.key.0123456789abcdef",
    "design_server.key",
    "issuer.pub",
    "gateway.pem",
    "gatekeeper.sqlite",
    "fleet.task",
    "r.parquet",
    "enrolment.toml",
    "proof.json",
    "receipts.jsonl",
)
"""Files that the commands of the documents write into a checkout."""


def plant(folder: Path) -> Path:
    """A checkout's ignore files, a module and everything that must stay here."""
    for name in (".gitignore", ".rayignore"):
        shutil.copy(ROOT / name, folder / name)
    for name in (*PRIVATE, "penrose_ray/seal.py", "scripts/coverage.py", "configs/fleet.toml"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return folder


@pytest.mark.parametrize("gitignore", [True, False], ids=["with .gitignore", "with .rayignore alone"])
def test_a_submitted_working_directory_holds_no_key_and_no_journal(
    tmp_path: Path, *, gitignore: bool
) -> None:
    packaging = pytest.importorskip("ray._private.runtime_env.packaging", reason="Ray packs the directory")
    (tmp_path / "checkout").mkdir()
    target = tmp_path / "package.zip"
    packaging.create_package(str(plant(tmp_path / "checkout")), target, include_gitignore=gitignore)
    with zipfile.ZipFile(target) as package:
        packed = set(package.namelist())
    assert {"penrose_ray/seal.py", "scripts/coverage.py", "configs/fleet.toml"} <= packed
    assert packed & set(PRIVATE) == set()


def test_git_adds_no_key_and_no_journal_and_ignores_nothing_that_it_tracks(tmp_path: Path) -> None:
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is asked")

    def asked(folder: Path, *arguments: str) -> set[str]:
        done = subprocess.run([git, *arguments], cwd=folder, capture_output=True, text=True, check=True)
        return set(done.stdout.splitlines())

    asked(plant(tmp_path), "init", "-q")
    asked(tmp_path, "add", ".")
    added = asked(tmp_path, "ls-files")
    assert "penrose_ray/seal.py" in added
    assert added & set(PRIVATE) == set()
    if (ROOT / ".git").exists():
        assert asked(ROOT, "ls-files", "-ci", "--exclude-standard") == set()


def test_the_version_stands_in_one_place() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", pr.__version__)
    citation = ROOT / "CITATION.cff"
    assert not citation.exists() or pr.__version__ in citation.read_text()


def test_the_public_names_are_type_checked_and_the_package_says_it_has_types() -> None:
    used = set(re.findall(r"\bpr\.(\w+)", (ROOT / "tests" / "typing" / "api.py").read_text()))
    assert used == set(pr.__all__)
    assert (ROOT / "penrose_ray" / "py.typed").exists()
    assert "tests/typing/api.py" in (ROOT / "Makefile").read_text()


def test_every_lint_rule_that_is_off_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    lint = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.flake8-type-checking]")]
    ruff = tomllib.loads(text)["tool"]["ruff"]["lint"]
    assert ruff["select"] == ["ALL"]
    off = [*ruff["ignore"], *(rule for rules in ruff["per-file-ignores"].values() for rule in rules)]
    explained = re.findall(r'^  "([A-Z]+[0-9]*)",? +# \w', lint, re.MULTILINE)
    assert sorted(explained) == sorted(off)
