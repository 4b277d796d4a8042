"""A Ray cluster of several nodes on this machine."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import ray
from ray.cluster_utils import Cluster

from penrose_ray.actors.processes import adopt_orphans, end_ray, family
from penrose_ray.actors.ray_start import patiently

if TYPE_CHECKING:
    from collections.abc import Iterator

_JOIN_S = 300


@contextmanager
def nodes(*options: dict[str, object]) -> Iterator[Cluster]:
    """A cluster of such nodes, the first its head; whatever they started ends with the block."""
    others = set(family(os.getpid()))
    adopt_orphans()

    def start() -> Cluster:
        made = Cluster(initialize_head=True, head_node_args={**options[0], "include_dashboard": False})
        for each in options[1:]:
            add(made, **each)
        return made

    def clean() -> None:
        ray.shutdown()
        end_ray(others)

    made = patiently(start, clean)
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        end_ray(others)


def add(cluster: Cluster, **options: object) -> None:
    """One more node; returns when it has joined."""
    cluster.add_node(wait=False, **options)
    cluster.wait_for_nodes(_JOIN_S)
