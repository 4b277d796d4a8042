"""The directory as a pure state machine: which shard has which bucket, and how a bucket gets elsewhere.

One move at a time: store the intent, seal the buckets at their source, copy them, store the new table, let
both shards settle. Whatever is interrupted before the table is stored is undone by settling to the old one;
whatever comes later is completed by settling to the new one. An epoch is used once, by one attempt, so a
message of an earlier attempt cannot be taken for one of this.
"""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penrose_ray.aggregate.routing import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.types import BucketId

_STORY: Final = 64


@dataclass(frozen=True, slots=True)
class Move:
    """Buckets on their way."""

    epoch: int
    source: str
    target: str
    buckets: frozenset[BucketId]


@dataclass(frozen=True, slots=True)
class State:
    """What the directory keeps on disk."""

    table: Table
    last_epoch: int
    """The last epoch that any attempt has used."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """These shards shall share the buckets."""

    shards: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Stored:
    """The state is on disk."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """The source refuses reports of the move's buckets."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Copied:
    """The target has all reports of the move's buckets on its disk."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Settled:
    """A shard has settled; `epoch` is that of the instruction."""

    shard: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The move cannot go on: a shard is gone or refused; it is tried again with the next `Wanted`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """A release is being made (or is done): buckets must not move meanwhile."""

    held: bool


Event = Wanted | Stored | Sealed | Copied | Settled | Interrupted | Held


@dataclass(frozen=True, slots=True)
class Store:
    """Write this to disk, then answer `Stored`."""

    state: State


@dataclass(frozen=True, slots=True)
class Seal:
    """Let the source seal the buckets, then answer `Sealed`."""

    move: Move


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy the buckets page by page from source to target, then answer `Copied`."""

    move: Move


@dataclass(frozen=True, slots=True)
class Settle:
    """Give a shard its buckets, then answer `Settled`; repeat until it succeeds.

    `epoch` is the last one that any attempt has used, so that what the attempt sent counts as late.
    """

    shard: str
    epoch: int
    buckets: frozenset[BucketId]


Instruction = Store | Seal | Copy | Settle


class Phase(enum.Enum):
    """What the directory waits for."""

    IDLE = "idle"
    INTENDING = "intending"
    SEALING = "sealing"
    COPYING = "copying"
    COMMITTING = "committing"
    SETTLING = "settling"


class DirectoryStateError(RuntimeError):
    """An event that cannot come now; the message ends with the story so far."""


class Directory:
    """Placement of the buckets.

    A restarted directory is built from its stored state: it settles every shard, which undoes or completes
    a move that was under way.
    """

    def __init__(self, state: State, *, validate: bool = False) -> None:
        self._state = state
        self._validate = validate
        self._phase = Phase.IDLE
        self._wanted: tuple[str, ...] | None = None
        self._move: Move | None = None
        self._unsettled: set[str] = set()
        self._held = False
        self._story: deque[str] = deque(maxlen=_STORY)

    @classmethod
    def fresh(cls, shards: Sequence[str]) -> State:
        """The first state of a service with these shards."""
        table = Table.of(shards)
        return State(table, table.epoch)

    @property
    def state(self) -> State:
        """What is on disk, or about to be."""
        return self._state

    @property
    def phase(self) -> Phase:
        """What the directory waits for."""
        return self._phase

    @property
    def move(self) -> Move | None:
        """The move under way."""
        return self._move

    @property
    def is_steady(self) -> bool:
        """Whether sums may be released: every shard has settled and nothing moves."""
        return self._phase is Phase.IDLE

    def start(self, shards: Sequence[str]) -> list[Instruction]:
        """Settle all these shards to the stored table; the first thing to do."""
        return self._settle(set(shards) | set(self._state.table.owners))

    def resume(self) -> list[Instruction]:
        """What is under way, once more, after it was given up: it is finished, and nothing else is begun."""
        self._wanted = None
        if self._phase in (Phase.INTENDING, Phase.COMMITTING):
            return [Store(self._state)]
        if self._phase is Phase.SETTLING:
            return self._settle(self._unsettled)
        return self._interrupted()

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event.

        Raises:
            DirectoryStateError: the event does not fit the phase. Answers of past attempts are ignored.
        """
        before = self._phase
        instructions = self._dispatch(event)
        self._story.append(f"{type(event).__name__}: {before.value} -> {self._phase.value}")
        if self._validate:
            self._check_invariants()
        return instructions

    def _dispatch(self, event: Event) -> list[Instruction]:
        instructions: list[Instruction] = []
        match event:
            case Wanted(shards):
                self._wanted = shards
                instructions = self._next()
            case Held(held):
                self._held = held
                instructions = self._next()
            case Stored():
                instructions = self._stored()
            case Sealed(epoch):
                instructions = self._copy() if self._is_due(Phase.SEALING, epoch) else []
            case Copied(epoch):
                instructions = self._commit() if self._is_due(Phase.COPYING, epoch) else []
            case Settled(shard, epoch):
                instructions = self._settled(shard, epoch)
            case Interrupted():
                instructions = self._interrupted()
        return instructions

    def _is_due(self, phase: Phase, epoch: int) -> bool:
        return self._phase is phase and self._move is not None and self._move.epoch == epoch

    def _next(self) -> list[Instruction]:
        """Begin the next move towards what is wanted."""
        if self._phase is not Phase.IDLE or self._held or self._wanted is None:
            return []
        moves = self._state.table.differences(Table.of(self._wanted))
        if not moves:
            self._wanted = None
            return []
        source, target, buckets = moves[0]
        epoch = self._state.last_epoch + 1
        self._move = Move(epoch, source, target, buckets)
        self._state = State(self._state.table, epoch)
        self._phase = Phase.INTENDING
        return [Store(self._state)]

    def _stored(self) -> list[Instruction]:
        move = self._need_move()
        if self._phase is Phase.INTENDING:
            self._phase = Phase.SEALING
            return [Seal(move)]
        if self._phase is Phase.COMMITTING:
            return self._settle({move.source, move.target})
        raise self._error("the state was stored unasked")

    def _copy(self) -> list[Instruction]:
        self._phase = Phase.COPYING
        return [Copy(self._need_move())]

    def _commit(self) -> list[Instruction]:
        move = self._need_move()
        table = self._state.table.moved(move.buckets, move.target, move.epoch)
        self._state = State(table, move.epoch)
        self._phase = Phase.COMMITTING
        return [Store(self._state)]

    def _settle(self, shards: set[str]) -> list[Instruction]:
        self._phase = Phase.SETTLING
        self._unsettled = set(shards)
        table, epoch = self._state.table, self._state.last_epoch
        return [Settle(shard, epoch, table.buckets_of(shard)) for shard in sorted(shards)]

    def _settled(self, shard: str, epoch: int) -> list[Instruction]:
        if self._phase is not Phase.SETTLING or epoch != self._state.last_epoch:
            return []
        self._unsettled.discard(shard)
        if self._unsettled:
            return []
        self._phase, self._move = Phase.IDLE, None
        return self._next()

    def _interrupted(self) -> list[Instruction]:
        """Between the stored intent and the stored table: back to the old one; its epoch is on disk."""
        if self._phase not in (Phase.SEALING, Phase.COPYING):
            return []
        move = self._need_move()
        self._wanted = None
        return self._settle({move.source, move.target})

    def _need_move(self) -> Move:
        if self._move is None:
            raise self._error("there is no move under way")
        return self._move

    def _error(self, reason: str) -> DirectoryStateError:
        return DirectoryStateError(f"{reason}; before: {' | '.join(self._story) or 'nothing'}")

    def _check_invariants(self) -> None:
        moving = self._phase in (Phase.INTENDING, Phase.SEALING, Phase.COPYING, Phase.COMMITTING)
        if moving and self._move is None:
            raise self._error("a phase of a move without a move")
        if self._phase is Phase.IDLE and (self._move or self._unsettled):
            raise self._error("idle with a move under way")
        if self._state.table.epoch > self._state.last_epoch:
            raise self._error("a table of an epoch that no attempt has used")
