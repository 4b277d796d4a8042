"""The actor graph: built once from settings, torn down whole."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import msgspec
import ray

from penrose_ray.actors.live import LiveClient
from penrose_ray.actors.matcher import Matcher
from penrose_ray.actors.processes import adopt_orphans, end_ray, family
from penrose_ray.actors.releaser import Releaser
from penrose_ray.actors.remote import GatewayActor, Handle, Hosted, RemoteShards, ask, shell
from penrose_ray.actors.shard import Shard
from penrose_ray.errors import PlacementError
from penrose_ray.task import SignedTask, Task, verify

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from penrose_ray.actors.client import ClientCounts
    from penrose_ray.actors.design_server import OpenedFile
    from penrose_ray.release.handover import Handover
    from penrose_ray.settings import ClientSettings, Settings, TomlFile
    from penrose_ray.types import BatchId

DESIGN_SERVER = "penrose_ray.actors.design_server:DesignServer"
_SHARD_RESOURCE = "shard"
_OBJECT_STORE_BYTES = 128 * 2**20
_FOR_EVER = {"max_restarts": -1, "max_task_retries": -1}
_SERVICE_ACTORS = 3
"""Design server, matcher and gateway; shards and clients come on top."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Totals over all clients and shards."""

    clients: tuple[ClientCounts, ...]
    accepted: int
    sums: int

    @property
    def launches(self) -> int:
        """Launches seen."""
        return sum(each.launches for each in self.clients)

    @property
    def samples(self) -> int:
        """Launches whose counters were read."""
        return sum(each.samples for each in self.clients)


def requested_cpus(settings: Settings) -> int:
    """Logical CPUs that the graph asks of Ray: one an actor."""
    return _SERVICE_ACTORS + settings.service.shards + sum(each.count for each in settings.clients)


class Topology:
    """A running service with its clients."""

    def __init__(self, settings: Settings, draft: TomlFile) -> None:
        self._settings = settings
        self._others = set(family(os.getpid()))
        try:
            _start_ray(settings)
            self._build(settings, draft)
        except BaseException:
            self.close()
            raise

    def _build(self, settings: Settings, draft: TomlFile) -> None:
        state = settings.service.state_dir.absolute()
        timeout_s = settings.service.start_timeout_s
        self._design_server = _actor(Hosted, name="design server").remote(
            DESIGN_SERVER, _absolute(settings).design_server, draft
        )
        ask(self._design_server.ready.remote(), timeout_s)
        self.signed_task: bytes = ask(self._design_server.call.remote("signed_task"), timeout_s)
        self.task: Task = verify(self.signed_task)
        home = state / self.task.task_id.hex()[:16]
        self.matcher = _actor(Matcher, name="matcher", **_FOR_EVER).remote(
            home / "classes.sqlite", self.signed_task
        )
        self.shards: dict[str, Handle] = {
            f"shard-{number}": _actor(
                Shard, name=f"shard-{number}", resources={_SHARD_RESOURCE: 1}, **_FOR_EVER
            ).remote(home / f"shard-{number}.sqlite", self.signed_task)
            for number in range(settings.service.shards)
        }
        ask([each.ready.remote() for each in (self.matcher, *self.shards.values())], timeout_s)
        self._gateway = _actor(GatewayActor, name="gateway", max_concurrency=1000).remote(
            self.signed_task, self.matcher, self.shards, settings.service.most_reports_per_request
        )
        port = ask(self._gateway.start.remote(settings.service.host, settings.service.port), timeout_s)
        self.url = f"http://{settings.service.host}:{port}"
        releases = settings.design_server.releases_dir.absolute()
        remote_shards = RemoteShards(self.matcher, list(self.shards.values()))
        self._releaser = Releaser(self.signed_task, releases, remote_shards)
        self._clients = [self._client(each, copy) for each in settings.clients for copy in range(each.count)]
        ask([each.ready.remote() for each in self._clients], timeout_s)

    def _client(self, settings: ClientSettings, copy: int) -> Handle:
        signer = msgspec.msgpack.decode(self.signed_task, type=SignedTask).signer
        own = settings.model_copy(update={"seed": settings.seed + copy})
        policy = self._settings.policy_file.absolute()
        return _actor(LiveClient, max_concurrency=2).remote(own, policy, self.url, self.signed_task, signer)

    def start_clients(self) -> None:
        """Let all clients begin."""
        ask([each.start.remote() for each in self._clients], self._settings.service.start_timeout_s)

    def progress(self) -> Progress:
        """Totals so far."""
        clients = ask([each.counts.remote() for each in self._clients])
        counts = ask([each.counts.remote() for each in self.shards.values()])
        return Progress(
            tuple(clients), sum(each.reports for each in counts), sum(each.sums for each in counts)
        )

    def watch(self, seconds: float, every_s: float) -> Iterator[Progress]:
        """Progress every `every_s` until `seconds` are over."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(every_s, left))
            yield self.progress()

    def stop_clients(self) -> list[ClientCounts]:
        """End all clients; what they had is sent."""
        return list(ask([each.stop.remote() for each in self._clients]))

    def batches(self) -> list[BatchId]:
        """Batches that hold reports and are not released."""
        return self._releaser.batches()

    def release(self, batch: BatchId) -> Handover:
        """Close a batch and hand over what passes the gate."""
        return self._releaser.release(batch)

    def open(self, handovers: Sequence[Handover], path: Path) -> OpenedFile:
        """Let the design server decrypt hand-overs into a Parquet file."""
        raw = [each.encode() for each in handovers]
        opened: OpenedFile = ask(self._design_server.call.remote("open", raw, path.absolute()))
        return opened

    def close(self) -> None:
        """Stop listening, close the journals and end every process that `ray.init` started."""
        with contextlib.suppress(Exception):  # whatever is broken, the processes must go
            ask(self._gateway.stop.remote(), 1)
            ask([shard.close.remote() for shard in self.shards.values()], 1)
        ray.shutdown()
        if not self._settings.service.ray_address:
            end_ray(self._others)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def build(settings: Settings, draft: TomlFile) -> Topology:
    """Start (or join) Ray and the whole graph.

    Raises:
        PlacementError: the cluster is too small; the message has the numbers.
        PortInUseError, ConfigError, KeyMissingError, KeyPermissionError, JournalError: as named.
    """
    return Topology(settings, draft)


def _actor(kind: type, *, name: str = "", **options: object) -> Handle:
    """`kind` as an actor class of one logical CPU; a named one says in `ps` what it is."""
    named = {"name": f"penrose {name}"} if name else {}
    return ray.remote(num_cpus=1)(shell(kind)).options(**named, **options)


def _start_ray(settings: Settings) -> None:
    wanted = requested_cpus(settings)
    if not settings.service.ray_address:
        adopt_orphans()
        ray.init(
            num_cpus=wanted,
            num_gpus=0,
            resources={_SHARD_RESOURCE: settings.service.shards},
            object_store_memory=_OBJECT_STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            namespace="penrose",
        )
        return
    ray.init(address=settings.service.ray_address, namespace="penrose", log_to_driver=False)
    have = ray.cluster_resources()  # type: ignore[no-untyped-call]
    short = {
        name: (need, have.get(name, 0))
        for name, need in (("CPU", wanted), (_SHARD_RESOURCE, settings.service.shards))
        if have.get(name, 0) < need
    }
    if short:
        ray.shutdown()
        text = ", ".join(
            f"{name} {need} (the cluster has {there:g})" for name, (need, there) in short.items()
        )
        raise PlacementError(
            f"The actor graph needs {text}.",
            remedy="Add nodes, start them with --resources for shards, or lower service.shards and clients.",
        )


def _absolute(settings: Settings) -> Settings:
    """Actors run in another directory: their paths must not depend on it."""
    server = settings.design_server
    paths = {"key_file": server.key_file.absolute(), "releases_dir": server.releases_dir.absolute()}
    return settings.model_copy(update={"design_server": server.model_copy(update=paths)})
