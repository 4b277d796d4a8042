"""Actor handles behind the interfaces that gateway and release desk ask for."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from penrose_ray.actors.gateway import Gateway, Intake, UnavailableError
from penrose_ray.errors import PenroseError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penrose_ray.aggregate.arrival import Answer, Arrival, PartialSum
    from penrose_ray.snippet.journal import SnippetClass
    from penrose_ray.types import BatchId, ReportId

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
    """`kind` with a method `ready()` that raises what its constructor raised.

    Ray hands on only the text of a constructor's error. A restarted actor's constructor fails as usual.
    """

    class Shell(kind):  # type: ignore[misc]
        def __init__(self, *arguments: object) -> None:
            self._refusal: PenroseError | None = None
            try:
                super().__init__(*arguments)
            except PenroseError as error:
                if ray.get_runtime_context().was_current_actor_reconstructed:
                    raise
                self._refusal = error

        def ready(self) -> None:
            if self._refusal is not None:
                raise self._refusal

    Shell.__name__ = Shell.__qualname__ = kind.__name__
    return Shell


def unwrapped(error: RayTaskError) -> Exception:
    """The exception that an actor's method raised."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, Exception) else error


def ask(reference: Any, timeout_s: float | None = None) -> Any:  # noqa: ANN401 - whatever the method returns
    """Wait for an actor's answer; its own error is raised as it was."""
    try:
        return ray.get(reference, timeout=timeout_s)
    except RayTaskError as error:
        raise unwrapped(error) from None


class RemoteBackend:
    """Matcher and shards as a gateway sees them."""

    def __init__(self, matcher: Handle, shards: Mapping[str, Handle]) -> None:
        self._matcher = matcher
        self._shards = dict(shards)

    @property
    def shards(self) -> Sequence[str]:
        """Names of the shards."""
        return list(self._shards)

    async def match(self, wanted: Sequence[tuple[str, str, bytes]]) -> list[SnippetClass]:
        """Class of each (GPU model, scheme, signature)."""
        return await _answer(self._matcher.match.remote(list(wanted)), "matcher")  # type: ignore[no-any-return]

    async def known(self, shard: str, ids: Sequence[ReportId]) -> set[ReportId]:
        """Which report ids a shard has already accepted."""
        return await _answer(self._shards[shard].known.remote(list(ids)), shard)  # type: ignore[no-any-return]

    async def accept(self, shard: str, arrivals: Sequence[Arrival]) -> list[Answer]:
        """Journal and add arrivals."""
        return await _answer(self._shards[shard].accept.remote(list(arrivals)), shard)  # type: ignore[no-any-return]


async def _answer(reference: Any, name: str) -> Any:  # noqa: ANN401 - whatever the method returns
    try:
        return await reference
    except RayTaskError as error:
        raise unwrapped(error) from None
    except (RayActorError, ActorUnavailableError) as error:
        raise UnavailableError(f"The {name} is restarting.", remedy="Send the same bytes again.") from error


class GatewayActor:
    """The gateway on an actor's event loop."""

    def __init__(
        self, signed_task: bytes, matcher: Handle, shards: Mapping[str, Handle], most_reports: int
    ) -> None:
        intake = Intake(signed_task, RemoteBackend(matcher, shards), most_reports=most_reports)
        self._gateway = Gateway(intake)

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port."""
        return await self._gateway.start(host, port)

    async def stop(self) -> None:
        """Close the port."""
        await self._gateway.stop()


class RemoteShards:
    """All shards and the matcher as the release desk sees them."""

    def __init__(self, matcher: Handle, shards: Sequence[Handle]) -> None:
        self._matcher = matcher
        self._shards = list(shards)

    def batches(self) -> list[BatchId]:
        """Open batches of any shard, ascending."""
        counts = ask([shard.batches.remote() for shard in self._shards])
        return sorted({each.batch for part in counts for each in part})

    def close_batch(self, batch: BatchId) -> None:
        """Close a batch on every shard."""
        ask([shard.close_batch.remote(batch) for shard in self._shards])

    def sums(self, batch: BatchId) -> list[PartialSum]:
        """The parts of every shard."""
        return [one for part in ask([shard.sums.remote(batch) for shard in self._shards]) for one in part]

    def classes(self) -> list[SnippetClass]:
        """All snippet classes."""
        classes: list[SnippetClass] = ask(self._matcher.classes.remote())
        return classes
