"""An encryptor of a pool: exact sums, and blinding that is made before it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from waiting import until

from penrose_ray.actors.encryptor import PoolEncryptor
from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.packing import Slots, pack, unpack
from penrose_ray.task import sign

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task


def test_sums_of_a_pool_are_exact(make_task: Callable[..., Task], design_keys: DesignKeys) -> None:
    task = make_task()
    layout = task.profile()
    encryptors = [PoolEncryptor(sign(task, design_keys.signing).encode(), ready=8) for _ in range(2)]
    until(lambda: encryptors[0].pool_size() >= 8)
    rng = np.random.default_rng(3)
    reports = [Slots(rng.integers(0, 2**30, 128), number, number % 2) for number in range(24)]
    total = Accumulator(task.key(), layout, capacity=100)
    for encryptor, part in zip(encryptors, (reports[:12], reports[12:]), strict=True):
        blobs = encryptor.encrypt_many([pack(each, layout) for each in part])
        assert len(set(blobs)) == 12
        total.add_many(blobs)
    opened = unpack(design_keys.paillier.decrypt(total.to_bytes(), layout), layout)
    assert (opened.bins == sum(each.bins for each in reports)).all()
    assert (opened.unfilled, opened.real_reports) == (sum(range(24)), 12)
    until(lambda: encryptors[1].pool_size() >= 8)
