"""Which reader reads a file: decided by its content, never by its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penrose_ray.capture import kineto, ncu, nsys, rocm_sqlite, rocprof, sqlite_file, xplane
from penrose_ray.capture.files import head_of, is_tar, members
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.capture.recording import Recording

_REMEDY = "docs/capture.md lists the formats that can be read."
_TABLES: tuple[tuple[frozenset[str], Callable[[Path], Recording]], ...] = (
    (ncu.REQUIRED, ncu.read_ncu),
    (rocprof.V3_REQUIRED, rocprof.read_rocprof_csv),
    (rocprof.COMPUTE_REQUIRED, rocprof.read_compute_csv),
)


def read_recording(path: Path, *, link_operators: bool = False) -> Recording:
    """The launches of a trace file.

    Raises:
        TraceError: the file is missing, damaged from its beginning on, or of no format known here.
    """
    head = head_of(path)
    if head.startswith(sqlite_file.MAGIC):
        return _read_sqlite(path)
    if re.match(rb'\s*\{\s*"rocprofiler-sdk-tool"', head):
        return rocprof.read_rocprof_json(path)
    if is_tar(head) or re.match(rb"(?:\xef\xbb\xbf)?\s*[\[{]", head):
        return kineto.read_kineto(members(path, head), link_operators=link_operators, path=str(path))
    cells = set(re.findall(r'[^",\r\n]+', head.decode("utf-8", "replace")))
    for required, read in _TABLES:
        if required <= cells:
            return read(path)
    if xplane.is_xplane(head):
        return xplane.read_xplane(path)
    raise TraceError(f"{path} is in no trace format known here.", remedy=_REMEDY)


def _read_sqlite(path: Path) -> Recording:
    with sqlite_file.opened(path) as connection:
        names = sqlite_file.tables(connection)
    if rocm_sqlite.is_rpd(names):
        return rocm_sqlite.read_rpd(path)
    if rocm_sqlite.is_compute(names):
        return rocm_sqlite.read_compute(path)
    if nsys.is_nsys(names):
        return nsys.read_nsys(path)
    raise TraceError(f"{path} is a SQLite file of no known profiler.", remedy=_REMEDY)
