"""Opening trace files by what is in them: gzip, tar, Git LFS pointers, and the format inside."""

from __future__ import annotations

import tarfile
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, cast

from penrose_ray.capture.gzip_stream import MAGIC as GZIP
from penrose_ray.capture.gzip_stream import GzipStream
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TAR = b"ustar"
_TAR_OFFSET = 257
_HEAD_BYTES = 64 << 10


def head_of(path: Path) -> bytes:
    """The first 64 KiB, decompressed.

    Raises:
        TraceError: the file is missing, unreadable, empty, no gzip file though it looks like one, or only a
            Git LFS pointer.
    """
    try:
        with plain(path) as stream:
            head = _read_some(stream)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TraceError(
            f"{path} cannot be read: {reason}.", remedy="Check the path and its permissions."
        ) from error
    if not head:
        raise TraceError(
            f"{path} is empty.", remedy="Record it again: its writer was killed before it wrote."
        )
    if head.startswith(b"version https://git-lfs"):
        raise TraceError(
            f"{path} is a Git LFS pointer, not the trace itself.",
            remedy="Fetch the file with `git lfs pull`.",
        )
    return head


def _read_some(stream: BinaryIO) -> bytes:
    """As much of the head as a damaged file gives."""
    parts: list[bytes] = []
    left = _HEAD_BYTES
    try:
        while left and (part := stream.read(min(left, 4096))):
            parts.append(part)
            left -= len(part)
    except (EOFError, zlib.error):
        pass
    return b"".join(parts)


@contextmanager
def plain(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, decompressed when it is a gzip file."""
    with path.open("rb") as raw:
        if raw.read(2) == GZIP:
            raw.seek(0)
            yield cast("BinaryIO", GzipStream(raw))
        else:
            raw.seek(0)
            yield raw


def is_tar(head: bytes) -> bool:
    """Whether a decompressed head is that of a tar archive."""
    return head[_TAR_OFFSET : _TAR_OFFSET + len(_TAR)] == _TAR


def members(path: Path, head: bytes) -> Iterator[tuple[str, BinaryIO]]:
    """Name and decompressed stream of each trace in the file: one, or those of an archive in name order.

    Each stream is valid until the next one is asked for.
    """
    if not is_tar(head):
        with plain(path) as stream:
            yield "", stream
        return
    try:
        with tarfile.open(path) as archive:
            entries = sorted((entry for entry in archive if entry.isfile()), key=lambda entry: entry.name)
            for entry in entries:
                inner = archive.extractfile(entry)
                if inner is None:
                    continue
                gzipped = inner.read(2) == GZIP
                inner.seek(0)
                yield entry.name, cast("BinaryIO", GzipStream(cast("BinaryIO", inner)) if gzipped else inner)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise TraceError(
            f"{path} is a damaged archive: {error}.", remedy="Copy it again, or read its files one by one."
        ) from error
