"""Traces for tools, written by hand so that every right answer is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.capture.events import KernelKind
from penrose_ray.capture.tools.trace import DeviceTable, HostTable, MemoryTable, Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from penrose_ray.histogram import Counter

    Kernel = tuple[str, int, int]


def make_trace(
    kernels: Sequence[Kernel],
    *,
    label: str = "rank 0",
    counters: Mapping[Counter, Sequence[float]] | None = None,
    models: tuple[str, ...] = ("made",),
    **columns: object,
) -> Trace:
    """Kernels as (name, start, end) on one stream of one device, unless columns say otherwise."""
    names = tuple(dict.fromkeys(name for name, _, _ in kernels))
    device = DeviceTable.of(
        len(kernels),
        **{
            "kind": KernelKind.KERNEL,
            "name": [names.index(name) for name, _, _ in kernels],
            "start_ns": [start for _, start, _ in kernels],
            "end_ns": [end for _, _, end in kernels],
            **columns,
        },
    )
    return Trace(
        label=label,
        format="made",
        names=names,
        models=models,
        device=device,
        host=HostTable.of(0),
        memory=MemoryTable.of(0),
        counters={key: np.asarray(values, dtype=float) for key, values in (counters or {}).items()},
    )


@pytest.fixture
def trace() -> Callable[..., Trace]:
    return make_trace
