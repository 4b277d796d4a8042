"""A clean checkout, and a clean environment that borrows this one's dependencies but not its penrose-ray."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
GIT = shutil.which("git") or "git"


def checkout(folder: Path) -> Path:
    """What is in the working tree and not ignored, as a git repository of its own.

    Raises:
        subprocess.CalledProcessError: this is not a git checkout.
    """
    subprocess.run([GIT, "clone", "-q", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    listed = subprocess.run(
        [GIT, "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        source, target = ROOT / name, folder / name
        if source.is_symlink():
            continue
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        else:
            target.unlink(missing_ok=True)
    return folder


def clean_environment(folder: Path) -> Path:
    """A virtual environment with pip and, from this one, everything but penrose-ray; returns its `bin`.

    A path file is not read inside another one, so an editable penrose-ray here is not seen there.
    """
    venv.create(folder, with_pip=True, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin"


def variables(bin_folder: Path, home: Path) -> dict[str, str]:
    """The environment of somebody who has just logged in."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENROSE", "PYTHON"))}
    for name in ("VIRTUAL_ENV", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "XDG_STATE_HOME"):
        kept.pop(name, None)
    return {**kept, "HOME": str(home), "PATH": f"{bin_folder}:{kept['PATH']}"}


def without_network(said: str) -> bool:
    """Whether pip failed because it reached no index, or lost it."""
    return any(each in said for each in _LOST)


PYTHON = sys.executable
_LOST = (
    "No matching distribution found for setuptools",
    *(
        "ConnectionError",
        "Max retries exceeded",
        "ReadTimeout",
        "ProtocolError",
        "HTTP error 4",
        "HTTP error 5",
    ),
)
