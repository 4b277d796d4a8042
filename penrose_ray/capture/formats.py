"""Which reader reads a file: decided by its content, never by its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penrose_ray.capture.files import head_of, is_tar, members
from penrose_ray.capture.kineto import read_kineto
from penrose_ray.errors import TraceError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.capture.recording import Recording

_REMEDY = "docs/capture.md lists the formats that can be read."


def read_recording(path: Path, *, link_operators: bool = False) -> Recording:
    """The launches of a trace file.

    Raises:
        TraceError: the file is missing, damaged from its beginning on, or of no format known here.
    """
    head = head_of(path)
    if is_tar(head) or re.match(rb"[\xef\xbb\xbf\s]*[\[{]", head):
        return read_kineto(members(path, head), link_operators=link_operators, path=str(path))
    raise TraceError(f"{path} is in no known trace format.", remedy=_REMEDY)
