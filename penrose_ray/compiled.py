"""C sources of the stages, compiled at first use and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

from penrose_ray.errors import SourceError

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-O2", "-Wall", "-shared", "-fPIC")
_LIBRARIES = ("-ldl", "-lpthread")
_REMEDY = "Install one, with `apt-get install gcc libc6-dev` on Debian or Ubuntu."
_REMEDY_SLOW = "Try again when the machine is less busy."
_COMPILE_S = 300.0


def cache_directory() -> Path:
    """Where compiled libraries are kept, private to this user."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "penrose-ray" / "native"


def shared_library(package: str, name: str, *flags: str) -> Path:
    """The library of `native/NAME.c` in a package; compiled unless it was, from the same sources.

    Raises:
        SourceError: there is no C compiler, or it fails.
        OSError: the cache cannot be written.
    """
    sources = resources.files(package) / "native"
    parts = sorted(
        (part for part in sources.iterdir() if part.name.endswith(".c")), key=lambda part: part.name
    )
    text = b"".join(part.read_bytes() for part in parts)
    key = hashlib.sha256(text + repr((flags, platform.machine())).encode()).hexdigest()[:16]
    target = cache_directory() / f"{name}-{key}.so"
    if target.exists():
        return target
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise SourceError("There is no C compiler, which is needed once.", remedy=_REMEDY)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with resources.as_file(sources) as folder, tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        built = Path(scratch) / target.name
        command = [compiler, *_FLAGS, "-o", str(built), str(folder / f"{name}.c"), *flags, *_LIBRARIES]
        try:
            done = subprocess.run(  # noqa: S603 - our own sources
                command, capture_output=True, text=True, check=False, timeout=_COMPILE_S
            )
        except subprocess.TimeoutExpired as error:
            raise SourceError(
                f"{compiler} has not compiled {name}.c in {_COMPILE_S:.0f} s.", remedy=_REMEDY_SLOW
            ) from error
        if done.returncode:
            raise SourceError(f"{compiler} failed on {name}.c: {done.stderr.strip()[:500]}.", remedy=_REMEDY)
        built.replace(target)
    return target
