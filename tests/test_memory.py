from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from penrose_ray import memory


def private_mb() -> float:
    """Memory of this process that no file backs."""
    found = re.search(r"RssAnon:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="this C library is not glibc")
def test_what_is_free_below_a_small_rest_goes_back_to_the_system() -> None:
    blocks = [np.ones(15_000) for _ in range(400)]  # too large for the holes that other tests left
    rest = blocks.pop()
    blocks.clear()
    kept_mb = private_mb()
    memory.give_back()
    assert kept_mb - private_mb() > 30, "48 MB were free"
    assert rest.sum() == 15_000
