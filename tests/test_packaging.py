"""What a wheel must hold beside modules."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

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
