"""What a test needs of its machine; without it the test is skipped with the reason."""

from __future__ import annotations

import shutil

import pytest

COMPILER = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler on this machine"
)
