"""Make what a version leaves on disk: python tests/upgrade/make.py FOLDER, before a format changes.

The shard journals of earlier versions are in tests/aggregate/journals, key files in tests/vectors.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from penrose_ray.snippet.journal import ClassJournal
from penrose_ray.snippet.minhash import Signature
from penrose_ray.snippet.scheme import FUNCTIONS
from penrose_ray.transport.spool import Spool, spool_key

SCHEME = "g8-plain-v1"
GPU = "NVIDIA A100"
CLASSES = 3
PUT_S = 1_750_000_000.0
RECORDS = (b"first" * 100, b"second" * 100)


def signature_of(seed: int) -> Signature:
    """A signature that only this seed has."""
    return Signature(SCHEME, np.random.default_rng(seed).integers(0, 2**32, FUNCTIONS, dtype=np.uint32))


def make(folder: Path) -> None:
    """Write the files; classes have the ids 1, 2, 3 and the third was merged into the first."""
    ids = iter(range(1, CLASSES + 1))
    journal = ClassJournal(
        folder / "classes.sqlite", SCHEME, 0.85, new_id=lambda size: next(ids).to_bytes(size, "big")
    )
    first, _, third = journal.match([(GPU, signature_of(seed)) for seed in range(CLASSES)])
    journal.merge(first.class_id, third.class_id)
    journal.close()
    with Spool(folder / "spool.sqlite", spool_key(folder / "spool.key")) as spool:
        for record in RECORDS:
            spool.put(record, PUT_S)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
