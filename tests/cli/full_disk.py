"""Runs `penrose ARGUMENTS` in a mount namespace of its own, on disks with room for more and more pages.

`python full_disk.py MOUNT FOLDER PAGES,PAGES,... ARGUMENT...`: on a disk with nothing else on it but FOLDER.
Prints a JSON line a disk: pages, exit code and stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

from penrose_ray.cli import app

PAGE_BYTES = 4096
MOUNT, UNMOUNT = (shutil.which(each) or each for each in ("mount", "umount"))


def on_a_disk_of(pages: int, mount: Path, folder: str) -> tuple[int, str]:
    """Exit code and stderr; a disk has a page at least, so that one is used up first."""
    size = f"size={(pages + 1) * PAGE_BYTES}"
    subprocess.run([MOUNT, "-t", "tmpfs", "-o", f"mode=700,{size}", "tmpfs", mount], check=True)
    try:
        (mount / "filler").write_bytes(b"x" * PAGE_BYTES)
        (mount / folder).mkdir(mode=0o700)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            try:
                app.main()
            except SystemExit as ended:
                return int(ended.code or 0), said.getvalue()
        raise AssertionError("main returned")
    finally:
        subprocess.run([UNMOUNT, "--lazy", mount], check=True)


if __name__ == "__main__":
    _, place, name, sizes, *sys.argv[1:] = sys.argv
    sys.argv[0] = "penrose"
    for each in map(int, sizes.split(",")):
        code, told = on_a_disk_of(each, Path(place), name)
        sys.stdout.write(json.dumps([each, code, told]) + "\n")
