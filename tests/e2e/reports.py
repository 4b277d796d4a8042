"""Sealed reports that set one bin of one class each: a lost one shows as 0, a double one as 2."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import numpy as np
import pyarrow.parquet as pq

from penrose_ray.clock import SystemClock
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.histogram import BINS
from penrose_ray.seal import Contribution, Sealer
from penrose_ray.snippet.minhash import signature
from penrose_ray.wire import encode

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.task import Task


def one_bin_each(task: Task, classes: int, *, counter_set: int = 0, seed: int | None = None) -> list[bytes]:
    """128 records for each class, mixed; with a seed their ids, which place and thin them, are the same."""
    random, encryptor = (
        np.random.default_rng(seed or 1),
        Encryptor(task.key(), task.profile(), exponent="short"),
    )
    sealer = Sealer(task, "Test GPU", encryptor, new_id=random.bytes if seed else secrets.token_bytes)
    now_s = SystemClock().now_s()
    records = []
    for number in range(classes):
        names = [f"class_{number}_kernel_{n}" for n in range(20)]
        known = signature(np.arange(200) % 20, names, scheme_id=task.signature_scheme)
        for place in range(BINS):
            counts = np.zeros(BINS, np.int64)
            counts[place] = 1
            report = sealer.seal(Contribution(counter_set, counts, real=True), known, now_s=now_s)
            records.append(encode(report))
    return [records[place] for place in random.permutation(len(records))]


def opened_bins(path: Path) -> dict[str, list[int]]:
    """Sum of the bins of each class over all rows of an opened release."""
    total: dict[str, np.ndarray] = {}
    for row in pq.read_table(path).to_pylist():
        total[row["class_id"]] = total.get(row["class_id"], 0) + np.array(row["bins"])
    return {class_id: bins.tolist() for class_id, bins in total.items()}
