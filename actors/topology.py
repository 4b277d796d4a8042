"""The actor graph: built once from settings, torn down whole."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar

import ray
import ray.exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from penrose_ray.actors import cluster
from penrose_ray.actors.approvals import ask_gatekeeper, gatekeeper_at
from penrose_ray.actors.attested import quote_of
from penrose_ray.actors.classes import Classes
from penrose_ray.actors.directory import HeldError, ShardGoneError
from penrose_ray.actors.encryptor import PoolEncryptor
from penrose_ray.actors.experiment_actor import RunningActor
from penrose_ray.actors.experiments import Experiment, Experiments
from penrose_ray.actors.fleet_clients import FleetClients
from penrose_ray.actors.gateways import GatewayActor, Gateways, gateway_names
from penrose_ray.actors.handovers import HandOvers, Timetable
from penrose_ray.actors.live import LiveClient
from penrose_ray.actors.live_page import Look, ShardState
from penrose_ray.actors.matcher import Matcher
from penrose_ray.actors.processes import end_ray, family
from penrose_ray.actors.releaser import Releaser
from penrose_ray.actors.remote import (
    DirectoryActor,
    Handle,
    Hosted,
    RemoteClasses,
    ThinnedShard,
    actor,
    ask,
)
from penrose_ray.actors.scaler import Scaler
from penrose_ray.actors.sealed_sample import NAME, SealedSample
from penrose_ray.actors.shard_pool import ShardPool
from penrose_ray.actors.thinner import Thinner
from penrose_ray.aggregate.balance import Decision
from penrose_ray.clock import SystemClock
from penrose_ray.crypto.envelope import ServiceKey
from penrose_ray.errors import ConfigError, JournalError, PenroseError
from penrose_ray.task import Task, read_signed, signer_of, verify
from penrose_ray.telemetry import snapshot
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

    from penrose_ray.actors.client import ClientCounts
    from penrose_ray.actors.opened import OpenedFile
    from penrose_ray.actors.sealed_sample import SampleCheck
    from penrose_ray.aggregate.arrival import SumKey
    from penrose_ray.clock import Clock
    from penrose_ray.release.handover import Handover
    from penrose_ray.settings import ClientSettings, Settings
    from penrose_ray.toml_file import TomlFile

T = TypeVar("T")
_LOG = logging.getLogger("penrose_ray.service")
DESIGN_SERVER = "penrose_ray.actors.design_server:DesignServer"
SHARED_DESIGN_SERVER = "penrose_ray.actors.design_server:SharedDesignServer"
_FOR_EVER: dict[str, Any] = {"max_restarts": -1, "max_task_retries": -1}
_HAND_OVER_TIMEOUT_S = 30.0
"""How long an ending service waits for the batch that is being handed over."""


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


class Topology:
    """A running service with its clients."""

    def __init__(self, settings: Settings, draft: TomlFile, clock: Clock | None = None) -> None:
        self._settings = settings
        link = settings.design_server.link
        self._gatekeepers = [gatekeeper_at(each, link) for each in settings.design_server.gatekeepers]
        self._clock = clock or SystemClock()
        self._others = set(family(os.getpid()))
        try:
            cluster.start(settings)
            self._build(settings, draft)
        except BaseException:
            self.close()
            raise

    def _build(self, settings: Settings, draft: TomlFile) -> None:
        timeout_s = settings.service.start_timeout_s
        self._design_server: Handle | None = None
        if settings.design_server.is_here:
            self._design_server = _here(Hosted).remote(*_design_server(settings, draft))
            ask(self._design_server.ready.remote(), timeout_s)
            self.signed_task: bytes = ask(self._design_server.call.remote("signed_task"), timeout_s)
        else:
            self.signed_task = read_signed(settings.design_server.task_file or "")
        self.task: Task = verify(self.signed_task)
        self._signer = signer_of(self.signed_task)
        self._build_service(settings, timeout_s)
        self.fleets: list[Handle] = []
        self._clients = [self._client(each, copy) for each in settings.clients for copy in range(each.count)]
        ask([each.ready.remote() for each in self._clients], timeout_s)

    def _build_service(self, settings: Settings, timeout_s: float) -> None:
        short_id = self.task.task_id.hex()[:16]
        home = settings.service.state_dir.absolute() / short_id
        self._prefix = prefix = f"penrose {short_id[:8]}"
        self.matcher = _here(Matcher, name=f"{prefix} matcher", **_FOR_EVER).remote(
            home / "classes.sqlite", self.signed_task
        )
        self.pool = ShardPool(
            home,
            self.signed_task,
            prefix,
            archive=settings.service.archive,
            disk_mark_bytes=settings.service.disk_mark_bytes,
        )
        names = self.pool.start(settings.service.shards, timeout_s)
        self.directory = _here(
            DirectoryActor, name=f"{prefix} directory", max_concurrency=4, **_FOR_EVER
        ).remote(home / "directory.json", prefix, names)
        ask([self.matcher.ready.remote(), self.directory.ready.remote()], timeout_s)
        quote = quote_of(self.task.task_id, settings.service.tpm)
        self.gateways = self._build_gateways(settings, quote)
        self.gateways.start(timeout_s)
        self.pool.join(self.directory, self.gateways.waiting)
        self.url = f"http://{settings.service.host}:{self.gateways.port}"
        self.thinner = Thinner(
            lambda: [ThinnedShard(each) for each in self.pool.working.values()],
            self._clock,
            most_per_s=settings.service.most_reports_per_s,
            least_per_s=settings.service.least_reports_per_s,
        )
        shards = RemoteClasses(
            self.directory,
            self.matcher,
            lambda: list(self.pool.working.values()),
            self.thinner,
            self.gateways,
            self.task,
        )
        self.classes = Classes(shards, self.task)
        releases = settings.design_server.releases_dir.absolute()
        key_file = settings.service.ledger_key_file
        self._releaser = Releaser(self.signed_task, releases, shards, key_file, self._clock, quote=quote)
        timetable = Timetable.of(self.task, settings.service.handover_every_s)
        self.handovers = HandOvers(self._releaser, timetable, self._clock)
        self.scaler = Scaler(
            self.pool, self._clock, least=settings.service.shards, most=cluster.most_shards(settings)
        )
        self._build_for_fleets(settings, home)
        self._build_experiments(settings)

    def _build_gateways(self, settings: Settings, quote: bytes) -> Gateways:
        """Several share one address, so they must be on one machine."""
        service = settings.service
        handles = {
            name: _here(
                GatewayActor,
                name=f"{self._prefix} {name}",
                is_must=service.gateways > 1,
                max_concurrency=1000,
                **_FOR_EVER,
            ).remote(
                name, self.signed_task, self._prefix, service.absolute(), settings.transport.absolute(), quote
            )
            for name in gateway_names(service.gateways)
        }
        return Gateways(handles, service.host, service.port)

    def _build_for_fleets(self, settings: Settings, home: Path) -> None:
        """What virtual clients need beside the service: a shard for their sealed sample, encryptors."""
        self._sample: SealedSample | None = None
        self._encryptors: dict[str, Handle] = {}
        fleets = [each for each in settings.clients if each.kind == "fleet"]
        if not any(each.sealed_one_in for each in fleets):
            return
        signed = self.signed_task
        if not self.task.profile().sealed:
            self._sample = SealedSample(self._opener(), home, self._prefix, self.matcher, self.directory)
            signed = self._sample.signed_task
        for number in range(settings.service.encryptors):
            name = f"encryptor-{number}"
            self._encryptors[name] = actor(PoolEncryptor, name=f"{self._prefix} {name}").remote(signed)
        ask([each.ready.remote() for each in self._encryptors.values()])

    def _fleet(self, settings: ClientSettings, copy: int) -> Handle:
        own = settings.model_copy(
            update={"simulation": settings.simulation and settings.simulation.absolute()}
        )
        sample = (self._sample.signed_task, NAME) if self._sample and settings.sealed_one_in else None
        handle = actor(FleetClients, max_concurrency=4).remote(
            own, copy, self._prefix, self.signed_task, sample, list(self._encryptors)
        )
        self.fleets.append(handle)
        return handle

    def _build_experiments(self, settings: Settings) -> None:
        self.experiments = Experiments(self._cores_left, RunningActor, self._clock)
        for name, cores in settings.service.experiment_queues.items():
            self.experiments.add_queue(name, cores)
        for each in settings.experiments:
            self.experiments.submit(
                Experiment(each.name, each.queue, each.place, each.cores, dict(each.arguments), each.gpus)
            )

    def _cores_left(self) -> int:
        """Logical CPUs that the service's actors, its clients and the shards to come leave."""
        settings = self._settings
        shards = len(self.pool.working) + self.pool.pending()
        service = cluster.requested_cpus(settings) - cluster.most_shards(settings) + shards
        total = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
        return min(total - service, cluster.experiment_cpus(settings))

    def _client(self, settings: ClientSettings, copy: int) -> Handle:
        if settings.kind == "fleet":
            return self._fleet(settings, copy)
        key_file = settings.name_key_file and settings.name_key_file.absolute()
        own = settings.model_copy(
            update={
                "seed": settings.seed + copy,
                "name_key_file": key_file,
                "link": settings.link.absolute(),
            }
        )
        policy = self._settings.policy_file.absolute()
        url = f"http://{cluster.client_host(self._settings)}:{self.gateways.port}"
        gpus = cluster.gpus_of(settings, self._settings)
        return actor(LiveClient, max_concurrency=3, num_gpus=gpus).remote(
            own, policy, url, self.signed_task, self._signer
        )

    def start_clients(self) -> None:
        """Let all clients begin."""
        ask([each.start.remote() for each in self._clients], self._settings.service.start_timeout_s)

    def progress(self) -> Progress:
        """Totals so far."""
        clients = ask([each.counts.remote() for each in self._clients])
        counts = ask([each.counts.remote() for each in self.pool.working.values()])
        return Progress(
            tuple(clients), sum(each.reports for each in counts), sum(each.sums for each in counts)
        )

    def watch(self, seconds: float, every_s: float) -> Iterator[Progress]:
        """Progress every `every_s` for so many seconds, or until all that fleets and replays have is sent."""
        end = time.monotonic() + seconds
        at_work = [each.wait.remote() for each in self._clients]
        while (left := end - time.monotonic()) > 0:
            pause_s = min(every_s, left)
            if at_work:
                _, at_work = ray.wait(at_work, num_returns=len(at_work), timeout=pause_s)
            else:
                time.sleep(pause_s)
            self.tend()
            yield self.progress()
            if self._clients and not at_work:
                return

    def tend(self) -> Decision:
        """What is due every few seconds: restarted gateways listen again, upkeep, scaling, hand-overs.

        What a part cannot do at the moment is left for the next time and holds nothing else up.
        """
        self.gateways.tend()
        attempted(self.handovers.tick)
        self.gateways.hear(snapshot())
        attempted(self.thinner.tick)
        attempted(lambda: self.pool.tick(self._releaser.handed_over()))
        decision = attempted(self.scaler.tick)
        attempted(self.experiments.tick)
        return decision or Decision(0, "not now")

    def status(self) -> dict[str, object]:
        """Figures of the service, ready for JSON."""
        table = ask(self.directory.table.remote())
        working = self.pool.working
        counts = ask([each.counts.remote() for each in working.values()])
        load = self.pool.load()
        gateways = self.gateways.state()
        return {
            "url": self.url,
            "task_id": self.task.task_id.hex(),
            "epoch": table.epoch,
            "classes": len(ask(self.matcher.classes.remote())),
            "waiting": load.waiting,
            "lag_s": max(each["lag_s"] for each in gateways),
            "pending": self.pool.pending(),
            "gateways": gateways,
            "shards": [
                {
                    "shard": name,
                    "buckets": len(table.buckets_of(name)),
                    "reports": count.reports,
                    "sums": count.sums,
                    "busy_s": round(load.busy_s.get(name, 0.0), 2),
                    "outcomes": count.outcomes,
                }
                for name, count in zip(working, counts, strict=True)
            ],
            "handovers": self.handovers.state(),
            "experiments": self.experiments.state(),
            "clients": [self._client_state(each) for each in self._clients],
            "decisions": [
                {"at_s": each.at_s, "delta": each.decision.delta, "reason": each.decision.reason}
                for each in self.scaler.made
            ],
        }

    def look(self) -> Look | None:
        """What the live page shows; None while a part of the service does not answer."""
        try:
            table = ask(self.directory.table.remote())
            working = dict(self.pool.working)
            parts = ask([each.weights.remote() for each in working.values()])
            load = self.pool.load()
        except (PenroseError, ray.exceptions.RayActorError):
            return None
        weights: Counter[SumKey] = Counter()
        for part in parts:
            weights.update(part)
        shards = [
            ShardState(
                shard=name,
                buckets=len(table.buckets_of(name)),
                reports=sum(part.values()),
                sums=len(part),
                busy_s=load.busy_s.get(name, 0.0),
            )
            for name, part in zip(working, parts, strict=True)
        ]
        return Look(weights, load.waiting, tuple(shards))

    @staticmethod
    def _client_state(client: Handle) -> dict[str, object]:
        try:
            return asdict(ask(client.counts.remote()))
        except PenroseError as error:
            return {"error": str(error)}

    def stop_clients(self) -> list[ClientCounts]:
        """End all clients; what they had is sent."""
        return list(ask([each.stop.remote() for each in self._clients]))

    def batches(self) -> list[BatchId]:
        """Batches that hold reports and are not released."""
        return self._releaser.batches()

    def release(self, batch: BatchId) -> Handover:
        """Close a batch and hand over what passes the gate."""
        return self._releaser.release(batch)

    @property
    def ledger_signer(self) -> bytes:
        """The public key of the ledger of releases."""
        return self._releaser.desk.signer

    def release_due(self) -> list[Handover]:
        """Hand over every batch that gets no more reports."""
        return [self.release(batch) for batch in self.batches()]

    def open_released(self) -> list[OpenedFile]:
        """Let the design server open each release that it has not opened yet, a Parquet file each."""
        desk, task_id = self._releaser.desk, self.task.task_id
        opened = []
        for facts in desk.facts():
            path = desk.releases.path(task_id, BatchId(facts.batch)).with_suffix(".parquet")
            handover = desk.releases.find(task_id, BatchId(facts.batch))
            if facts.kind == "release" and handover is not None and not path.exists():
                opened.append(self.open([handover], path))
        return opened

    def open(self, handovers: Sequence[Handover], path: Path) -> OpenedFile:
        """Let the design server decrypt hand-overs into a Parquet file; gatekeepers do their part first.

        Raises:
            TransportError, GatekeeperError: a gatekeeper is away, or refuses.
            ConfigError: the design server is on another machine.
        """
        requests = (
            [self._releaser.desk.request(each.batch) for each in handovers] if self._gatekeepers else []
        )
        partials = [[ask_gatekeeper(party, each) for party in self._gatekeepers] for each in requests]
        raw = [each.encode() for each in handovers]
        call = self._opener().call.remote("open", raw, path.absolute(), partials)
        opened: OpenedFile = ask(call)
        return opened

    def _opener(self) -> Handle:
        if self._design_server is None:
            raise ConfigError(
                "This service has no design server: it can open nothing.",
                remedy="Open its releases on the design server's own machine: penrose release open --keys.",
            )
        return self._design_server

    def check_sample(self, path: Path) -> SampleCheck | None:
        """Open the sealed sample of fleets whose reports are plain and compare; None where there is none.

        Raises:
            SumRuleError: a decrypted sum is not the plain one.
        """
        if self._sample is None:
            return None
        return self._sample.check(ask([each.truth.remote() for each in self.fleets]), path)

    def close(self) -> None:
        """Stop listening, close the journals and end every process that `ray.init` started."""
        with contextlib.suppress(AttributeError):  # it was not built
            self.handovers.stop(_HAND_OVER_TIMEOUT_S)
        with contextlib.suppress(Exception):  # whatever is broken, the processes must go
            self.gateways.stop(1)
        with contextlib.suppress(Exception):
            self.experiments.stop()
        with contextlib.suppress(Exception):
            self.pool.close(1)
        with contextlib.suppress(Exception):
            if self._sample:
                self._sample.close()
        ray.shutdown()
        if not self._settings.service.ray_address:
            end_ray(self._others)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def attempted(step: Callable[[], T]) -> T | None:
    """What a step returns that comes again in a few seconds; None when a part cannot do its share now."""
    try:
        return step()
    except (JournalError, HeldError, ShardGoneError, ray.exceptions.RayActorError) as error:
        _LOG.warning("not now: %s", error)
        return None


def build(settings: Settings, draft: TomlFile, clock: Clock | None = None) -> Topology:
    """Start (or join) Ray and the whole graph; `clock` says when what is due, but for reports.

    Raises:
        PlacementError: the cluster is too small; the message has the numbers.
        PortInUseError, ConfigError, KeyMissingError, KeyPermissionError, JournalError: as named.
    """
    return Topology(settings, draft, clock)


def _here(kind: type, *, is_must: bool = False, **options: object) -> Handle:
    """`kind` as an actor on this node, unless it has no room and `is_must` is not set.

    Its files are here, and clients know its address.
    """
    node = ray.get_runtime_context().get_node_id()
    where = NodeAffinitySchedulingStrategy(node, soft=not is_must)
    return actor(kind, scheduling_strategy=where, **options)


def _design_server(settings: Settings, draft: TomlFile) -> tuple[object, ...]:
    """What to host, and its arguments; the actor runs in another directory, so its paths are absolute."""
    server = settings.design_server.absolute()
    if server.share_file:
        return SHARED_DESIGN_SERVER, server
    service = settings.service
    return DESIGN_SERVER, server, draft, ServiceKey.own(service.key_file).public if service.seal_tags else b""
