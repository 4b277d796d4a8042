"""Releases written by the real writer from histograms whose counts are chosen by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.opening import OpenedSum, Opening, write_parquet
from penrose_ray.task import Task
from penrose_ray.types import BatchId, ClassId

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from penrose_ray.crypto.keyfile import DesignKeys

_DURATION = CounterSet(
    "duration", (Counter("duration", "ns", "opencl", "pocl"),), axes=(Axis("log", 100.0, 1e9),)
)
_JOINT = CounterSet(
    "dram_tensor",
    (Counter("dram_active", "%", "dcgm", "nvidia"), Counter("tensor_active", "%", "dcgm", "nvidia")),
    axes=(Axis("linear", 0.0, 100.0, 16), Axis("linear", 0.0, 100.0, 8)),
)
_KINDS = CounterSet(
    "kernel_kind",
    (Counter("kernel_kind", "1", "name", "any"),),
    categories=("gemm", "conv", "attention", "elementwise", "reduction", "copy", "collective", "other"),
)


@pytest.fixture(scope="session")
def duration() -> CounterSet:
    """One log axis: durations."""
    return _DURATION


@pytest.fixture(scope="session")
def joint() -> CounterSet:
    """DRAM use (16 bins) by tensor use (8 bins)."""
    return _JOINT


@pytest.fixture(scope="session")
def kinds() -> CounterSet:
    """Categories: what a kernel does."""
    return _KINDS


@pytest.fixture(scope="session")
def opened() -> Callable[..., OpenedSum]:
    """A sum of `reports` reports, a tenth of them cover."""
    return _opened


@pytest.fixture(scope="session")
def make_task(design_keys: DesignKeys) -> Callable[..., Task]:
    """A task over the given counter sets."""

    def make(*counter_sets: CounterSet, demo: bool = False, **fields: object) -> Task:
        return Task(
            name=str(fields.pop("name", "fleet survey")),
            demo=demo,
            public_key=design_keys.paillier.public_key.to_bytes(),
            counter_sets=counter_sets,
            rotation=(tuple(each.name for each in counter_sets),),
            **fields,  # type: ignore[arg-type]
        )

    return make


@pytest.fixture(scope="session")
def write_release(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The file of a release with the given sums."""

    def write(task: Task, sums: Sequence[OpenedSum], *more: Opening) -> Path:
        path = tmp_path_factory.mktemp("release") / "release.parquet"
        batches = sorted({each.batch for each in sums})
        openings = [
            Opening(task, batch, tuple(each for each in sums if each.batch == batch), ()) for batch in batches
        ]
        write_parquet([*openings, *more], path)
        return path

    return write


def _opened(
    counter_set: CounterSet,
    counts: NDArray[np.int64],
    *,
    name: int = 1,
    batch: int = 20_000,
    reports: int = 220,
    gpu_model: str = "NVIDIA A100-SXM4-80GB",
) -> OpenedSum:
    return OpenedSum(
        class_id=ClassId(bytes([name]) * 16),
        gpu_model=gpu_model,
        counter_set=counter_set,
        batch=BatchId(batch),
        reports=reports,
        real_reports=reports - reports // 10,
        samples=int(counts.sum()),
        counts=counts,
    )
