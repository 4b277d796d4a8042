"""The shards of a service as actors: started, told their buckets, drained and ended."""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import TYPE_CHECKING

import ray
import ray.exceptions

from penrose_ray.actors.directory import HeldError, ShardGoneError
from penrose_ray.actors.remote import Handle, ask, named, shell
from penrose_ray.actors.scaler import Load
from penrose_ray.actors.shard import Shard
from penrose_ray.errors import JournalError, PenroseError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from penrose_ray.aggregate.routing import Table
    from penrose_ray.types import BatchId

SHARD_RESOURCE = "shard"
_LOG = logging.getLogger("penrose_ray.shards")
_THREADS = 8
"""Calls that a shard takes at a time: what waits while it commits is committed together next."""


class ShardPool:
    """Names, handles and placement of all shards; the scaler's `Pool`."""

    def __init__(
        self, home: Path, signed_task: bytes, prefix: str, *, archive: str = "", disk_mark_bytes: int = 0
    ) -> None:
        self._archive, self._disk_mark_bytes = archive, disk_mark_bytes
        self._home = home
        self._signed_task = signed_task
        self._prefix = prefix
        self._mutex = threading.RLock()
        self._directory: Handle = None
        self._waiting: Callable[[], int] = lambda: 0
        self.working: Mapping[str, Handle] = {}
        """Replaced, never changed: several threads go through it."""
        self._coming: dict[str, tuple[Handle, Handle]] = {}
        """Shards that were asked for, with the reference of their `ready`."""

    def start(self, count: int, timeout_s: float) -> list[str]:
        """Start the first shards and wait until they work; returns their names.

        Shards whose journals are there from an earlier run are started, too: their reports must not be lost.
        """
        kept = {path.stem for path in self._home.glob("shard-*.sqlite")}
        names = sorted({f"shard-{number}" for number in range(count)} | kept, key=_number)
        self.working = {name: self._actor(name) for name in names}
        ask([handle.ready.remote() for handle in self.working.values()], timeout_s)
        return names

    def join(self, directory: Handle, waiting: Callable[[], int]) -> None:
        """Know who places the buckets, and how many reports wait for the shards."""
        self._directory, self._waiting = directory, waiting

    def place(self, names: Sequence[str]) -> Table:
        """Share the buckets among these shards; returns who has which.

        Raises:
            HeldError: a release is being made.
            ShardGoneError: a shard did not answer; nothing is lost.
            JournalError: a shard could not write; nothing is lost.
        """
        table: Table = ask(self._directory.place.remote(list(names)))
        return table

    def load(self) -> Load:
        """CPU seconds of the shards that work, and reports that wait."""
        with self._mutex:
            self._welcome()
            working = dict(self.working)
        seconds = ask([handle.busy_s.remote() for handle in working.values()])
        return Load(dict(zip(working, seconds, strict=True)), self._waiting())

    def pending(self) -> int:
        """Shards that were asked for and do not work yet."""
        return len(self._coming)

    def grow(self, shards: int) -> None:
        """Ask for more shards; the cluster's autoscaler sees their requests and adds nodes."""
        with self._mutex:
            taken = {_number(name) for name in (*self.working, *self._coming)}
            free = (number for number in range(len(taken) + shards) if number not in taken)
            for number, _ in zip(free, range(shards), strict=False):
                name = f"shard-{number}"
                handle = self._actor(name)
                self._coming[name] = (handle, handle.ready.remote())

    def shrink(self) -> None:
        """Drain the shard of the highest number, then end it; its empty journal stays.

        Raises:
            HeldError, ShardGoneError, JournalError: it could not be drained and goes on.
        """
        with self._mutex:
            name = max(self.working, key=_number)
            if self.place([each for each in self.working if each != name]).buckets_of(name):
                raise ShardGoneError(f"{name} has buckets left.", remedy="Try again when all shards work.")
            handle = self.working[name]
            self.working = {each: self.working[each] for each in self.working if each != name}
        with contextlib.suppress(JournalError, ray.exceptions.RayActorError):  # nothing in it counts any more
            ask(handle.close.remote())
        ray.kill(handle)
        for end in ("", "-wal", "-shm"):  # the latter where it did not close, or somebody reads it
            with contextlib.suppress(FileNotFoundError):
                (self._home / f"{name}.sqlite{end}").rename(self._home / f"drained-{name}.sqlite{end}")

    def tick(self, handed_over: Collection[BatchId] = ()) -> None:
        """Let the directory finish what it had to give up, and every shard do what is due.

        Rows go of batches `handed_over` alone.
        """
        shards = self.working.values()
        ask([self._directory.resume.remote(), *(each.tick.remote(handed_over) for each in shards)])

    def compact(self) -> int:
        """Move cold batches of every shard to the archive; returns how many."""
        return sum(len(batches) for batches in ask([each.compact.remote() for each in self.working.values()]))

    def close(self, timeout_s: float) -> None:
        """Close all journals."""
        ask([handle.close.remote() for handle in self.working.values()], timeout_s)

    def _welcome(self) -> None:
        """Give buckets to the shards that have come up."""
        references = {reference: name for name, (_, reference) in self._coming.items()}
        if not references:
            return
        done, _ = ray.wait(list(references), num_returns=len(references), timeout=0)
        came = [name for name in map(references.__getitem__, done) if self._has_come(name)]
        if not came:
            return
        # First: a place that fails half way has given them buckets, and a release asks the shards that work.
        self.working = {**self.working, **{name: self._coming[name][0] for name in came}}
        with contextlib.suppress(HeldError):  # they wait until the release is made
            self.place(list(self.working))
            for name in came:
                del self._coming[name]

    def _has_come(self, name: str) -> bool:
        """Whether a shard that is ready works; one that could not start is ended and asked for no more."""
        handle, ready = self._coming[name]
        try:
            ask(ready)
        except (PenroseError, ray.exceptions.RayError) as error:
            _LOG.error("%s could not start: %s", name, error)
            del self._coming[name]
            ray.kill(handle)
            return False
        return True

    def _actor(self, name: str) -> Handle:
        try:
            return named(self._prefix, name)
        except ShardGoneError:
            kind: Handle = ray.remote(num_cpus=1, resources={SHARD_RESOURCE: 1})(shell(Shard))
            actor = kind.options(
                name=f"{self._prefix} {name}",
                max_restarts=-1,
                max_task_retries=-1,
                max_concurrency=_THREADS,
            )
            return actor.remote(
                self._home / f"{name}.sqlite", self._signed_task, self._archive, self._disk_mark_bytes
            )


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])
