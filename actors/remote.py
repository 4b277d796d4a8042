"""Actor handles behind the interfaces that gateway and release desk ask for."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError, RayError, RayTaskError

from penrose_ray.actors.coalesce import Coalescer
from penrose_ray.actors.directory import DirectoryService, ShardGoneError
from penrose_ray.actors.intake import BacklogError, UnavailableError
from penrose_ray.actors.metrics import RaySink
from penrose_ray.actors.otel import export
from penrose_ray.actors.worker_logs import blank, scrub_worker
from penrose_ray.aggregate.routing import Table
from penrose_ray.errors import ConfigError, PlacementError
from penrose_ray.telemetry import WAITING, forward, snapshot

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from penrose_ray.actors.gateways import Gateways
    from penrose_ray.actors.thinner import Thinner
    from penrose_ray.aggregate.arrival import Answer, Arrival, PartialSum, SumKey
    from penrose_ray.aggregate.block import Block, BlockAnswer
    from penrose_ray.aggregate.service import OpenSums
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.task import Task
    from penrose_ray.telemetry import Snapshot
    from penrose_ray.types import BatchId, ClassId, ReportId

T = TypeVar("T")
_PAUSE_S = 0.2
_CALL_TIMEOUT_S = 60.0
_GAP_S = 0.01
"""Between two messages to a shard: each is a commit, which costs as much as dozens of reports."""
_PART_TIMEOUT_S = 2.0
Handle = Any
"""A Ray actor handle; Ray gives it no static type."""


class Hosted:
    """An object in a process of its own, made from a dotted name: the caller never imports its module."""

    def __init__(self, place: str, *arguments: object) -> None:
        module, _, name = place.partition(":")
        self._object = getattr(importlib.import_module(module), name)(*arguments)

    def call(self, method: str, *arguments: object) -> object:
        """Call a method of the hosted object."""
        return getattr(self._object, method)(*arguments)


def shell(kind: type) -> type:
    """`kind` with methods `ready()`, which raises what its constructor raised, `pid()` and `metrics()`.

    Ray hands on only the text of a constructor's error, and writes it into its own logs. A restarted actor's
    constructor fails as usual, its error without who and where. What the process writes is scrubbed.
    """

    class Shell(kind):  # type: ignore[misc]
        def __init__(self, *arguments: object) -> None:
            self._refusal: Exception | None = None
            scrub_worker()
            os.umask(0o077)  # journals and releases are their owner's
            forward(RaySink(_own_name(kind)))
            try:
                export(_own_name(kind))
                super().__init__(*arguments)
            except Exception as error:  # noqa: BLE001 - raised again where it reaches the caller and no log
                self._refusal = _named(error)
            gc.freeze()  # what was imported stays: looking at it again takes a tenth of a second each time
            if self._refusal and ray.get_runtime_context().was_current_actor_reconstructed:
                raise blank(self._refusal)

        def ready(self) -> None:
            if self._refusal is not None:
                raise self._refusal

        def pid(self) -> int:
            return os.getpid()

        def metrics(self) -> Snapshot:
            return snapshot()

    Shell.__name__ = Shell.__qualname__ = kind.__name__
    return Shell


def _own_name(kind: type) -> str:
    """Name of this actor without the service's prefix; its kind where it has none."""
    name: str = ray.get_runtime_context().get_actor_name() or ""
    return name.rpartition(" ")[2] or kind.__name__.lower()


def _named(error: Exception) -> Exception:
    if not isinstance(error, OSError):
        return error
    return ConfigError(f"{error.filename or 'A file'}: {error.strerror or error}.", remedy="Check the path.")


def unwrapped(error: RayTaskError) -> Exception:
    """The exception that an actor's method raised."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def ask(reference: Any, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - whatever the method returns
    """Wait for an actor's answer; its own error is raised as it was.

    Raises:
        PlacementError: none came in time.
    """
    try:
        return ray.get(reference, timeout=timeout_s)
    except GetTimeoutError as error:
        raise PlacementError(
            f"An actor did not answer within {timeout_s:g} s.",
            remedy="Give the cluster more CPUs, or raise service.start_timeout_s.",
        ) from error
    except RayTaskError as error:
        raise unwrapped(error) from None


def actor(kind: type, **options: object) -> Handle:
    """`kind` as an actor class of one logical CPU."""
    return ray.remote(num_cpus=1)(shell(kind)).options(**options)


def named(prefix: str, name: str) -> Handle:
    """Handle of the actor of that name; ShardGoneError while there is none."""
    try:
        return ray.get_actor(f"{prefix} {name}")
    except ValueError as error:
        raise ShardGoneError(f"There is no actor {prefix} {name}.", remedy="Wait until it works.") from error


class DirectoryActor:
    """The directory with actors as its shards. Threads answer questions while buckets move."""

    def __init__(self, path: Path, prefix: str, shards: Sequence[str]) -> None:
        self._prefix = prefix
        self._service = DirectoryService(path, shards, self._call, pause=lambda: time.sleep(_PAUSE_S))

    def table(self) -> Table:
        """Owner of every bucket."""
        return self._service.table()

    def place(self, shards: Sequence[str]) -> Table:
        """Share the buckets among these shards."""
        return self._service.place(shards)

    def resume(self) -> None:
        """Finish what was given up because a shard failed."""
        self._service.resume()

    def hold(self, *, held: bool) -> None:
        """Let no bucket move, or let them move again."""
        self._service.hold(held=held)

    def _call(self, shard: str, method: str, /, *arguments: object) -> Any:  # noqa: ANN401 - as the method
        handle = named(self._prefix, shard)
        try:
            return ask(getattr(handle, method).remote(*arguments), _CALL_TIMEOUT_S)
        except (RayError, PlacementError) as error:
            raise ShardGoneError(
                f"{shard} does not answer: {error}.", remedy="Wait until it works."
            ) from error


class RemoteRoute:
    """Matcher and shards as a fleet sees them; with `only`, that one shard takes everything."""

    def __init__(self, prefix: str, only: str = "") -> None:
        self._prefix, self._only = prefix, only
        self._shards: dict[str, Handle] = {}

    def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        """Class of each (GPU model, scheme, signature)."""
        return ask(named(self._prefix, "matcher").match.remote(list(wanted)))  # type: ignore[no-any-return]

    def table(self) -> Table:
        """Who keeps which bucket now."""
        if self._only:
            return Table.of([self._only])
        self._shards.clear()
        return ask(named(self._prefix, "directory").table.remote())  # type: ignore[no-any-return]

    def offer(self, shard: str, block: Block) -> Handle:
        """Send a block; returns the reference of the answer."""
        if shard not in self._shards:
            self._shards[shard] = named(self._prefix, shard)
        return self._shards[shard].accept_block.remote(block)

    def answer(self, pending: Handle) -> BlockAnswer:
        """Wait for a shard's answer; UnavailableError when it has gone."""
        try:
            return ask(pending)  # type: ignore[no-any-return]
        except RayActorError as error:
            raise UnavailableError("A shard is gone.", remedy="Send the same bytes again.") from error


class RemoteEncryptors:
    """A pool of encryptors; each takes an equal share."""

    def __init__(self, prefix: str, names: Sequence[str]) -> None:
        self._handles = [named(prefix, name) for name in names]

    def encrypt_many(self, plaintexts: Sequence[tuple[int, ...]]) -> list[bytes]:
        """Blobs of packed reports, in order."""
        size = -(-len(plaintexts) // len(self._handles))
        shares = [plaintexts[at : at + size] for at in range(0, len(plaintexts), size)]
        sent = [each.encrypt_many.remote(share) for each, share in zip(self._handles, shares, strict=False)]
        return [blob for part in ask(sent) for blob in part]


class RemoteBackend:
    """Matcher and shards as a gateway sees them; what comes while one of them is busy goes together next."""

    def __init__(self, prefix: str, most_waiting: int) -> None:
        self._prefix = prefix
        self._most_waiting = most_waiting
        self._directory = named(prefix, "directory")
        self._matcher = named(prefix, "matcher")
        self._matches: Coalescer[tuple[str, str, bytes], SnippetClass] = Coalescer(self._match)
        self._table: Table | None = None
        self._shards: dict[str, _RemoteShard] = {}

    async def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        """Class of each (GPU model, scheme, signature)."""
        return await self._matches.call(wanted)

    async def _match(self, wanted: list[tuple[str, str, bytes]]) -> list[SnippetClass]:
        return await _answer(self._matcher.match.remote(wanted), "matcher")  # type: ignore[no-any-return]

    async def owner_of(self, report_id: ReportId) -> str:
        """Name of the shard that takes this report, as far as is known here."""
        if self._table is None:
            await self.refresh()
        return self._table.owner_of(report_id) if self._table else ""

    async def refresh(self) -> None:
        """Learn the shards' places anew."""
        self._table = await _answer(self._directory.table.remote(), "directory")

    async def known(self, shard: str, ids: Sequence[ReportId]) -> set[ReportId]:
        """Which report ids a shard has already accepted."""
        found = await self._reach(shard, self._shard(shard).known.call(ids))
        return {report_id for report_id, is_known in zip(ids, found, strict=True) if is_known}

    async def accept(self, shard: str, arrivals: Sequence[Arrival]) -> list[Answer]:
        """Journal and add arrivals."""
        waiting = self.waiting()
        if waiting and waiting + len(arrivals) > self._most_waiting:
            raise BacklogError(
                f"{waiting} reports wait already, {self._most_waiting} may.",
                remedy="Send the same bytes again.",
            )
        return await self._reach(shard, self._shard(shard).accept.call(arrivals))

    async def _reach(self, shard: str, answer: Awaitable[T]) -> T:
        """Wait for a shard; one that does not answer may have been drained, so its place is asked anew."""
        try:
            return await answer
        except UnavailableError:
            self._shards.pop(shard, None)
            self._table = None
            raise

    def waiting(self) -> int:
        """Reports that no shard has taken yet."""
        waiting = sum(len(shard.accept) for shard in self._shards.values())
        WAITING.set(waiting, stage="shard")
        WAITING.set(len(self._matches), stage="matcher")
        return waiting

    def load_s(self) -> float:
        """Seconds of work that wait for the busiest shard."""
        return max((shard.accept.load_s() for shard in self._shards.values()), default=0.0)

    async def missing(self) -> list[str]:
        """Names of matcher, directory and shards that do not answer."""
        names = await self._names()
        found = await self.ask_each(names, "ready")
        return [name for name in names if name not in found]

    async def snapshots(self) -> dict[str, Snapshot | None]:
        """What each part has counted; None for one that does not answer."""
        names = await self._names()
        found = await self.ask_each(names, "metrics")
        return {name: found.get(name) for name in names}

    async def _names(self) -> list[str]:
        """Matcher, directory and the shards that have buckets."""
        try:
            table: Table = await asyncio.wait_for(self._directory.table.remote(), _PART_TIMEOUT_S)
            shards = sorted(set(table.owners))
        except (RayError, TimeoutError):
            shards = sorted(self._shards)
        return ["directory", "matcher", *shards]

    async def ask_each(self, names: Sequence[str], method: str) -> dict[str, Any]:
        """The answers of these actors, without those that do not answer."""
        answers = await asyncio.gather(*(self._ask(name, method) for name in names), return_exceptions=True)
        return {
            name: answer
            for name, answer in zip(names, answers, strict=True)
            if not isinstance(answer, BaseException)
        }

    async def _ask(self, name: str, method: str) -> Any:  # noqa: ANN401 - whatever the method returns
        handle = named(self._prefix, name)
        return await asyncio.wait_for(getattr(handle, method).remote(), _PART_TIMEOUT_S)

    def _shard(self, name: str) -> _RemoteShard:
        if name not in self._shards:
            try:
                self._shards[name] = _RemoteShard(name, named(self._prefix, name))
            except ShardGoneError as error:
                raise UnavailableError(error.message, remedy=error.remedy) from error
        return self._shards[name]


class _RemoteShard:
    """A shard's handle with what waits for it."""

    def __init__(self, name: str, handle: Handle) -> None:
        self.accept: Coalescer[Arrival, Answer] = Coalescer(self._accept, gap_s=_GAP_S)
        self.known: Coalescer[ReportId, bool] = Coalescer(self._known)
        self._handle = handle
        self._name = name

    async def _accept(self, arrivals: list[Arrival]) -> list[Answer]:
        return await _answer(self._handle.accept.remote(arrivals), self._name)  # type: ignore[no-any-return]

    async def _known(self, ids: list[ReportId]) -> list[bool]:
        found: set[ReportId] = await _answer(self._handle.known.remote(ids), self._name)
        return [report_id in found for report_id in ids]


async def _answer(reference: Any, name: str) -> Any:  # noqa: ANN401 - whatever the method returns
    try:
        return await reference
    except RayTaskError as error:
        raise unwrapped(error) from None
    except (RayActorError, ActorUnavailableError) as error:
        raise UnavailableError(f"The {name} is restarting.", remedy="Send the same bytes again.") from error


class ThinnedShard:
    """A shard as the thinner sees it."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def open_sums(self) -> OpenSums:
        """Weights and keep rates of the sums of open batches."""
        found: OpenSums = ask(self._handle.open_sums.remote())
        return found

    def thin(self, halvings: Mapping[SumKey, int]) -> None:
        """Keep one report in 2^halvings of these sums from now on."""
        ask(self._handle.thin.remote(dict(halvings)))


class RemoteShards:
    """All shards and the matcher as the release desk sees them."""

    def __init__(
        self, directory: Handle, matcher: Handle, shards: Callable[[], Sequence[Handle]], thinner: Thinner
    ) -> None:
        self._thinner = thinner
        self._holding = threading.Lock()
        self._directory = directory
        self._matcher = matcher
        self._shards = shards

    def hold(self, *, held: bool) -> None:
        """Let no bucket move while a release is being made; whoever else wants that waits for its end."""
        if held:
            self._holding.acquire()
        keeps = False
        try:
            ask(self._directory.hold.remote(held=held))
            keeps = held
        finally:
            if not keeps:
                self._holding.release()

    def batches(self) -> list[BatchId]:
        """Batches whose sums any shard has, ascending."""
        counts = ask([shard.batches.remote() for shard in self._shards()])
        return sorted({each.batch for part in counts for each in part})

    def close_batch(self, batch: BatchId) -> None:
        """Close a batch on every shard."""
        with self._thinner.levelled():
            ask([shard.close_batch.remote(batch) for shard in self._shards()])

    def sums(self, batch: BatchId) -> list[PartialSum]:
        """The parts of every shard."""
        return [one for part in ask([shard.sums.remote(batch) for shard in self._shards()]) for one in part]

    def classes(self) -> list[SnippetClass]:
        """All snippet classes."""
        classes: list[SnippetClass] = ask(self._matcher.classes.remote())
        return classes


class RemoteClasses(RemoteShards):
    """The same, with the gateways, as whoever regroups classes sees them."""

    def __init__(
        self,
        directory: Handle,
        matcher: Handle,
        shards: Callable[[], Sequence[Handle]],
        thinner: Thinner,
        gateways: Gateways,
        task: Task,
    ) -> None:
        super().__init__(directory, matcher, shards, thinner)
        self._gateways, self._scheme = gateways, task.signature_scheme

    def merge(self, kept: ClassId, gone: ClassId) -> None:
        """Let the matcher make one class an alias of another."""
        ask(self._matcher.merge.remote(kept, gone))

    def found(self, class_id: ClassId, signature: bytes) -> SnippetClass:
        """Let the matcher found a class beside `class_id`."""
        made: SnippetClass = ask(self._matcher.split.remote(class_id, signature))
        return made

    def match(self, gpu_model: str, signatures: Sequence[bytes]) -> list[SnippetClass]:
        """The class of each signature."""
        wanted = [(gpu_model, self._scheme, each) for each in signatures]
        matched: list[SnippetClass] = ask(self._matcher.match.remote(wanted))
        return matched

    def signatures(self, class_id: ClassId) -> dict[bytes, bytes]:
        """Signatures by snippet hash in the open sums of a class, on all shards."""
        parts = ask([shard.signatures.remote(class_id) for shard in self._shards()])
        return {each: signature for part in parts for each, signature in part.items()}

    def split(self, class_id: ClassId, classes: Mapping[bytes, ClassId]) -> None:
        """Let all shards give reports of a class to others, by snippet hash."""
        ask([shard.split.remote(class_id, classes) for shard in self._shards()])

    def forget_classes(self) -> None:
        """Let the gateways ask the matcher again."""
        self._gateways.forget_classes()
