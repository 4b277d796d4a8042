"""Batch experiments on the cluster of the aggregation service: what gives way, and which queues become one.

Experiments run below aggregation: they get the cores that shards leave, and give them back when shards wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

LONG_S: Final = 30 * 60
LITTLE_PROGRESS: Final = 0.4
IDLE_S: Final = 120
LITTLE_USE: Final = 0.15


@dataclass(frozen=True, slots=True)
class Run:
    """An experiment that runs."""

    name: str
    cores: int
    running_s: float
    progress: float
    """Share of its work that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue of experiments with workers of its own."""

    name: str
    use: float
    """Share of its workers' time that was used, 0 to 1."""
    idle_s: float
    """Time since it last started an experiment."""


def preempted(runs: Sequence[Run], cores: int) -> list[Run]:
    """Runs to stop so that `cores` become free, in that order; all of them if they do not suffice.

    Runs over 30 minutes with less than 40 % done go first, the longest with the least progress before the
    others: they are the furthest from an end. The rest follows in the same order.
    """

    def rank(run: Run) -> tuple[bool, float, float, str]:
        stuck = run.running_s > LONG_S and run.progress < LITTLE_PROGRESS
        return not stuck, -run.running_s, run.progress, run.name

    stopped: list[Run] = []
    for run in sorted(runs, key=rank):
        if cores <= 0:
            break
        stopped.append(run)
        cores -= run.cores
    return stopped


def merged_queues(queues: Sequence[Queue]) -> list[tuple[str, str]]:
    """Pairs (queue, queue that takes it over): those idle for 120 s and used less than 15 %.

    They join the busiest queue, which gets their workers; one queue always stays.
    """
    if not queues:
        return []
    stays = max(queues, key=lambda queue: (queue.use, -queue.idle_s, queue.name))
    idle = [queue for queue in queues if queue.idle_s >= IDLE_S and queue.use < LITTLE_USE]
    return [(queue.name, stays.name) for queue in idle if queue is not stays]
