"""The rules of a release as one hash, so that ledger and gatekeeper can compare them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from penrose_ray.task import Task


def policy_hash(task: Task) -> bytes:
    """SHA-256 of the parameters that decide what passes and how noisy it is."""
    rule = (
        task.min_contributors,
        task.reports_per_class,
        task.hostile_clients,
        task.tokens_per_day,
        task.cover_rate,
        task.noise_sigma,
        task.noise_epsilon,
        task.noise_delta,
        task.noise_target_error,
        task.sub_batches,
    )
    return hashlib.sha256(msgspec.msgpack.encode(rule)).digest()
