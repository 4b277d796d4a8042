"""Fixtures that every test may use."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, settings

from penrose_ray.crypto.keyfile import DesignKeys
from penrose_ray.crypto.private_key import PrivateKey
from penrose_ray.histogram import Axis, Counter, CounterSet
from penrose_ray.task import Task

if TYPE_CHECKING:
    from collections.abc import Callable

# a timing never decides a test
settings.register_profile("penrose", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penrose")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell, for what runs behind it
    signal.signal(signal.SIGINT, signal.default_int_handler)

_TEST_KEYS = Path(__file__).parent / "vectors" / "test_keys.json"


@pytest.fixture(scope="session")
def design_keys() -> DesignKeys:
    """The frozen 3,072-bit TEST keys, so that tests do not generate keys."""
    frozen = json.loads(_TEST_KEYS.read_text())
    pair = frozen["std3072"]
    return DesignKeys(
        PrivateKey(int(pair["p"], 16), int(pair["q"], 16)),
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(frozen["signing_seed"])),
    )


@pytest.fixture(scope="session")
def make_task(design_keys: DesignKeys) -> Callable[..., Task]:
    """Makes a small demo task for the TEST key; keyword arguments replace fields."""
    duration = Counter("duration", "ns", "opencl", "any")
    kind = Counter("kind", "", "opencl", "any")
    fields = {
        "name": "try-out",
        "demo": True,
        "public_key": design_keys.paillier.public_key.to_bytes(),
        "counter_sets": (
            CounterSet("duration", (duration,), (Axis("log", 100.0, 1e9),)),
            CounterSet("kind", (kind,), categories=("gemm", "conv", "other")),
        ),
        "rotation": (("duration",), ("kind",)),
        "samples_per_histogram": 100,
        "min_samples": 10,
        "min_contributors": 2,
        "tokens_per_day": 0,
    }
    return lambda **changed: Task(**{**fields, **changed})
