"""Traces for capture tests: real ones where they are at hand, small ones written on the spot."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(scope="session")
def real_traces() -> Path:
    root = os.environ.get("PENROSE_TRACES")
    if not root:
        pytest.skip("PENROSE_TRACES is not set: real traces are not at hand")
    return Path(root)


@pytest.fixture(scope="session")
def kernel_event() -> Callable[..., dict[str, Any]]:
    return _kernel_event


def _kernel_event(number: int, name: str = "gemm", **changed: object) -> dict[str, Any]:
    """A kernel as Kineto writes it: correlation `number`, starting at 10 us x `number`, 5 us long."""
    args = {
        "device": 0,
        "context": 1,
        "stream": 7,
        "correlation": number,
        "grid": [4, 2, 1],
        "block": [128, 1, 1],
    }
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": 10.0 * number, "dur": 5.0}
    return {**event, "args": args, **changed}


@pytest.fixture
def write_kineto(tmp_path: Path) -> Callable[..., Path]:
    """Write events as a Kineto file, gzipped when its name says so."""

    def write(events: list[dict[str, Any]], *, name: str = "trace.json", **members: object) -> Path:
        members.setdefault("deviceProperties", [{"id": 0, "name": "NVIDIA H100"}])
        text = json.dumps({"schemaVersion": 1, **members, "traceEvents": events})
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return write
