"""Keys and reports of the crypto tests."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.crypto.packing import BINS, SlotProfile, Slots, profile
from penrose_ray.crypto.private_key import PrivateKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys

H = 10_000
_TEST_KEYS = Path(__file__).parents[1] / "vectors" / "test_keys.json"


@pytest.fixture(scope="session")
def key(design_keys: DesignKeys) -> PrivateKey:
    return design_keys.paillier


@pytest.fixture(scope="session")
def key2048() -> PrivateKey:
    pair = json.loads(_TEST_KEYS.read_text())["std2048"]
    return PrivateKey(int(pair["p"], 16), int(pair["q"], 16))


@pytest.fixture(scope="session")
def key_for(key: PrivateKey, key2048: PrivateKey) -> Callable[[SlotProfile], PrivateKey]:
    by_bits = {3072: key, 2048: key2048}
    return lambda slot_profile: by_bits[slot_profile.modulus_bits]


@pytest.fixture
def std() -> SlotProfile:
    return profile("std3072")


@pytest.fixture(params=["std3072", "std2048", "compact3072"])
def any_profile(request: pytest.FixtureRequest) -> SlotProfile:
    return profile(request.param)


@pytest.fixture
def draw_report() -> Callable[[int], Slots]:
    """An honest report of H samples: full, partial or cover, as the seed wills."""

    def draw(seed: int) -> Slots:
        rng = random.Random(seed)  # noqa: S311 - a seeded test
        samples = rng.choice([H, rng.randrange(100, H), 0])
        counts = np.bincount([rng.randrange(BINS) for _ in range(samples)], minlength=BINS)
        return Slots(counts.astype(np.int64), H - samples, int(samples > 0))

    return draw
