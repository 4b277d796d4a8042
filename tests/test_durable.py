"""Files that are whole or not there."""

from __future__ import annotations

import errno
import os
import resource
from typing import TYPE_CHECKING

import pytest

from penrose_ray.durable import append, place, replace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_a_new_file_is_its_owner_s_and_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    place(path, b"one")
    assert path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        place(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_what_replaces_a_file_has_its_own_mode(tmp_path: Path) -> None:
    path = tmp_path / "receipt"
    path.write_bytes(b"old")
    path.chmod(0o644)
    replace(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o600)


@pytest.mark.parametrize("write", [place, replace, append])
def test_a_disk_that_fails_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[..., None]
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"before")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for path in (old, new):
        with pytest.raises(OSError, match="No space"):
            write(path, b" and after")
    monkeypatch.undo()
    assert old.read_bytes() == b"before"
    assert {each.name: each.stat().st_size for each in tmp_path.iterdir() if each != old} in ({}, {"new": 0})


@pytest.mark.parametrize("size", [50, 50_000])
def test_a_file_that_could_not_grow_to_the_end_has_no_torn_one(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 90)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))  # a full disk takes the first bytes, too
    try:
        with pytest.raises(OSError, match="File too large"):
            append(path, b"y" * size)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    append(path, b"z")
    assert path.read_bytes() == b"x" * 90 + b"z"


def test_a_file_grows_at_its_end(tmp_path: Path) -> None:
    for part in (b"one,", b"two"):
        append(tmp_path / "log", part)
    assert (tmp_path / "log").read_bytes() == b"one,two"
