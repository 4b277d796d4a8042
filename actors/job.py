"""The work of a Ray job: one function over many items, spread over the cluster that the job runs in."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import ray

from penrose_ray.actors.processes import end_ray, family
from penrose_ray.actors.ray_start import start_local
from penrose_ray.actors.remote import ask
from penrose_ray.actors.worker_logs import scrubbed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

T = TypeVar("T")
R = TypeVar("R")
ADDRESS_VARIABLE = "RAY_ADDRESS"
"""Set by `ray job submit` for the script that it runs."""


@contextmanager
def joined() -> Iterator[None]:
    """Be part of the cluster that RAY_ADDRESS names, otherwise of a local one that ends with this."""
    if os.environ.get(ADDRESS_VARIABLE):
        ray.init(log_to_driver=False)
        try:
            yield
        finally:
            ray.shutdown()
        return
    others = set(family(os.getpid()))
    start_local()
    try:
        yield
    finally:
        ray.shutdown()
        end_ray(others)


def spread(
    function: Callable[[T], R], items: Sequence[T], needs: Mapping[str, float] | None = None
) -> Iterator[tuple[int, R]]:
    """Call `function` with every item, each in a task of its own.

    Args:
        function: without state; it and the items are pickled.
        items: its arguments.
        needs: resources of a task by Ray's names, such as {"CPU": 2, "shard": 1}; None is one CPU.

    Yields:
        Position of the item and its result, as they get ready.

    Raises:
        Exception: what a call raised, as it was.
    """
    rest = dict(needs or {})
    task = ray.remote(num_cpus=rest.pop("CPU", 1), num_gpus=rest.pop("GPU", 0), resources=rest)(
        scrubbed(function)
    )
    waiting = {task.remote(item): position for position, item in enumerate(items)}
    while waiting:
        (ready,), _ = ray.wait(list(waiting), num_returns=1)
        yield waiting.pop(ready), ask(ready)
