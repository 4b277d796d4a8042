"""Programs made of kernel names, for the snippet tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


sys.path.append(str(Path(__file__).parents[2]))  # the measures of benchmarks/ are tested here, too


@pytest.fixture(scope="session")
def program() -> Callable[..., NDArray[np.int64]]:
    """Name ids of a training loop: `layers` times a layer's kernels, then an optimizer step, again and again.

    Two seeds draw their kernels from 60 names independently.
    """

    def launches(seed: int, count: int, *, phase: int = 0, layers: int = 6) -> NDArray[np.int64]:
        rng = np.random.default_rng(seed)
        layer, head, optimizer = (rng.integers(0, 60, size) for size in (14, 25, 40))
        step = np.concatenate([head, *[layer] * layers, head[::-1], optimizer])
        repeats = (phase + count) // len(step) + 1
        return np.tile(step, repeats)[phase : phase + count]

    return launches


@pytest.fixture(scope="session")
def names() -> list[str]:
    """The names that a program's ids index."""
    return [f"kernel_{letter}" for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"] + [
        f"gemm_{letter}" for letter in "abcdefgh"
    ]
