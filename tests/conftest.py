"""Fixtures that every test may use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penrose_ray.crypto.keyfile import DesignKeys
from penrose_ray.crypto.private_key import PrivateKey

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
