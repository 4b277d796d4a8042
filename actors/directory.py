"""The directory: who keeps which bucket, durable, and the moves that change it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from penrose_ray.aggregate.moving import Placement
from penrose_ray.aggregate.placement import (
    Copied,
    Copy,
    Directory,
    Held,
    Interrupted,
    Seal,
    Sealed,
    Settle,
    Settled,
    State,
    Store,
    Stored,
    Wanted,
)
from penrose_ray.aggregate.routing import BUCKETS, Table
from penrose_ray.durable import replace
from penrose_ray.errors import JournalError, JournalVersionError, PenroseError
from penrose_ray.telemetry import MOVED_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from penrose_ray.aggregate.placement import Event, Instruction

_VERSION = 1
_ATTEMPTS = 10
"""To settle a shard; then others must have their turn, for a hold or a move waits meanwhile."""


class ShardGoneError(PenroseError):
    """A shard did not answer; what was under way is tried again."""

    code = "busy"
    exit_code = 40


class HeldError(PenroseError):
    """Making a release and moving buckets are in each other's way."""

    code = "busy"
    exit_code = 40


class Call(Protocol):
    """Calls a method of a shard wherever it runs; ShardGoneError when it does not answer."""

    def __call__(self, shard: str, method: str, /, *arguments: object) -> Any:  # noqa: ANN401 - as the method
        """The method's result."""
        ...


class _Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    state: State


class DirectoryService:
    """The pure directory at work. One instance writes the file; its calls may come from any thread."""

    def __init__(
        self, path: Path, shards: Sequence[str], call: Call, *, pause: Callable[[], object] = lambda: None
    ) -> None:
        """Read the file or begin with `shards`; then every shard is told its buckets.

        Args:
            path: the file that survives restarts.
            shards: names of the shards that work.
            call: reaches a shard.
            pause: waits a little before a shard that did not answer is asked again.

        Raises:
            JournalError: the file is damaged.
            JournalVersionError: a newer version wrote it.
        """
        self._path = path
        self._call = call
        self._pause = pause
        self._mutex = threading.Lock()
        self._held = False
        state = _read(path) or Directory.fresh(shards)
        _write(path, state)
        self._directory = Directory(state)
        with self._mutex:
            instructions = self._directory.start(shards)
            while instructions:
                try:
                    self._carry_out(instructions)
                except ShardGoneError:
                    instructions = self._directory.resume()
                else:
                    break

    def table(self) -> Table:
        """Owner of every bucket, as stored."""
        return self._directory.state.table

    def place(self, shards: Sequence[str]) -> Table:
        """Share the buckets among these shards and return the table when all have moved.

        Interrupted by a shard that fails, it has undone the move under way, or `resume` will: call again.

        Raises:
            HeldError: a release is being made; nothing has changed.
            ShardGoneError: a move was given up.
            JournalError: a shard or this directory could not write; a move was given up.
        """
        with self._mutex:
            if self._held:
                raise HeldError(
                    "No bucket moves while a release is being made.", remedy="Try again when it is made."
                )
            self._carry_out(self._directory.resume())
            before = self.table().owners
            try:
                self._carry_out(self._directory.handle(Wanted(tuple(shards))))
            finally:
                table = self._directory.state.table
                moved = sum(old != new for old, new in zip(before, table.owners, strict=True))
                MOVED_BUCKETS.add(moved)
        if table.owners != Table.of(shards).owners:
            raise ShardGoneError("Not all buckets could move.", remedy="Try again when all shards work.")
        return table

    def resume(self) -> None:
        """Finish what was given up because a shard failed; call it every few seconds. Raises like `place`."""
        with self._mutex:
            self._carry_out(self._directory.resume())

    def hold(self, *, held: bool) -> None:
        """Let no bucket move while a release is being made.

        Raises:
            ShardGoneError, JournalError: a move under way could not be finished; nothing is held.
            HeldError: nothing was held, for the directory restarted: buckets may have moved meanwhile.
        """
        with self._mutex:
            if held:
                self._carry_out(self._directory.resume())
            elif not self._held:
                raise HeldError(
                    "The directory restarted while a release was being made.", remedy="Make it again."
                )
            self._held = held
            self._carry_out(self._directory.handle(Held(held)))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        """Carry out all that can be, then raise the first error."""
        waiting = deque(instructions)
        failure: Exception | None = None
        while waiting:
            try:
                event = self._answer(waiting.popleft())
            except (PenroseError, RuntimeError) as error:
                failure = failure or error
            else:
                waiting.extend(self._directory.handle(event))
        if failure:
            raise failure

    def _answer(self, instruction: Instruction) -> Event:
        match instruction:
            case Store(state):
                _write(self._path, state)
                return Stored()
            case Settle(shard, epoch, buckets):
                self._settle(shard, Placement(epoch, buckets))
                return Settled(shard, epoch)
            case Seal(move):
                try:
                    self._call(move.source, "seal", move.buckets, move.epoch)
                except (PenroseError, RuntimeError) as error:  # the latter where it came late
                    return Interrupted(str(error))
                return Sealed(move.epoch)
            case Copy(move):
                try:
                    self._copy(move.source, move.target, move.buckets, move.epoch)
                except (PenroseError, RuntimeError) as error:  # the latter where it came late
                    return Interrupted(str(error))
                return Copied(move.epoch)

    def _copy(self, source: str, target: str, *place: object) -> None:
        after: int | None = 0
        while after is not None:
            page = self._call(source, "export", *place, after)
            self._call(target, "receive", page)
            after = page.following

    def _settle(self, shard: str, placement: Placement) -> None:
        for _ in range(_ATTEMPTS - 1):
            with contextlib.suppress(ShardGoneError):
                self._call(shard, "settle", placement)
                return
            self._pause()
        self._call(shard, "settle", placement)


def _read(path: Path) -> State | None:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise JournalError(
            f"The directory's file {path} cannot be read: {error}.", remedy="Check its permissions."
        ) from error
    try:
        saved = msgspec.json.decode(raw, type=_Saved)
    except msgspec.MsgspecError as error:
        raise JournalError(
            f"The directory's file {path} is damaged: {error}.", remedy="Restore it from a backup."
        ) from error
    if saved.version > _VERSION:
        raise JournalVersionError(
            f"The directory's file {path} has version {saved.version}, this program knows {_VERSION}.",
            remedy="Use the newer release of penrose-ray that wrote it.",
        )
    if len(saved.state.table.owners) != BUCKETS:
        raise JournalError(
            f"The directory's file {path} is damaged: it has {len(saved.state.table.owners)} buckets.",
            remedy="Restore it from a backup.",
        )
    return saved.state


def _write(path: Path, state: State) -> None:
    """Replace the file: after a crash either the old or the new state is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, msgspec.json.encode(_Saved(_VERSION, state)))
    except OSError as error:
        raise JournalError(
            f"The directory's file {path} cannot be written: {error}.", remedy="Free space on its disk."
        ) from error
