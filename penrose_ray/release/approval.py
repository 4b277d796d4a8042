"""What a gatekeeper and a design server apart look at before they decrypt: all that needs no key to check.

It cannot see that a ciphertext is the sum of the reports that are named: a lying service could hand over
one report's ciphertext under the ids of many. What it makes certain is that every decryption is announced,
counted, paid for with ids that were never used before, and the same for everyone who asks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from penrose_ray.errors import GateError, HandoverError, PenroseError
from penrose_ray.release.gate import passes
from penrose_ray.release.handover import Entry, Handover, decode
from penrose_ray.release.ledger import LedgerEntry, Line, check_chain
from penrose_ray.release.merkle import Tree
from penrose_ray.release.rules import policy_hash

if TYPE_CHECKING:
    from penrose_ray.task import Task

_CONTEXT = b"penrose-ray partial decryption of a release\x00"
_ASK_AGAIN = "Take it from the release desk again; an altered one is never opened."


class PartialsRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A released batch: the hand-over, the ids behind each entry, and the ledger up to now."""

    handover: bytes
    members: tuple[tuple[bytes, ...], ...]
    ledger: tuple[Line, ...]

    def encode(self) -> bytes:
        """Bytes of the request."""
        return msgspec.msgpack.encode(self)


@dataclass(frozen=True, slots=True)
class Approved:
    """A request that passed every check that needs no memory."""

    handover: Handover
    handover_hash: bytes
    ids: tuple[bytes, ...]
    ledger: tuple[LedgerEntry, ...]


def approve(task: Task, raw: bytes, *, ledger_signer: bytes) -> Approved:
    """Check a request against the task and the ledger's pinned key.

    Raises:
        HandoverError: count, ids, checksum, ledger or rules do not agree.
    """
    try:
        request = msgspec.msgpack.decode(raw, type=PartialsRequest)
        handover = decode(request.handover)
        ledger = check_chain(list(request.ledger), signer=ledger_signer)
        for entry in handover.entries:
            passes(task, entry.weight)
    except GateError as error:
        raise _refusal(error.message) from error
    except (msgspec.MsgspecError, PenroseError) as error:
        raise _refusal(str(error)) from error
    digest = hashlib.sha256(request.handover).digest()
    ids = tuple(sorted(each for members in request.members for each in members))
    if fault := _fault(task, handover, digest, request.members, ledger, ids):
        raise _refusal(fault)
    return Approved(handover, digest, ids, tuple(ledger))


def context_of(handover_hash: bytes, entry: Entry) -> bytes:
    """What a partial decryption's proof is bound to: the hand-over and the place in it."""
    place = (entry.class_id, entry.counter_set, entry.sub_batch)
    return _CONTEXT + handover_hash + msgspec.msgpack.encode(place)


def _fault(
    task: Task,
    handover: Handover,
    digest: bytes,
    members: tuple[tuple[bytes, ...], ...],
    ledger: list[LedgerEntry],
    ids: tuple[bytes, ...],
) -> str | None:
    released = [e for e in ledger if (e.facts.kind, e.facts.batch) == ("release", handover.batch)]
    if handover.task_id != task.task_id or any(e.task_id != task.task_id for e in ledger):
        return "it is of another task"
    if len(released) != 1:
        return f"the ledger has {len(released)} releases of batch {handover.batch}"
    facts = released[0].facts
    if len(members) != len(handover.entries) or len(set(ids)) != len(ids):
        return "an id stands twice, or an entry lacks its ids"
    for entry, of_entry in zip(handover.entries, members, strict=True):
        if fault := _entry_fault(entry, of_entry):
            return fault
    rules = {
        "the hand-over is not the one in the ledger": facts.handover_hash == digest,
        "the ledger's rules are not the task's": facts.policy_hash == policy_hash(task),
        "the ledger's noise is not the task's": facts.noise_sigma == task.noise_sigma,
        "the ledger says another epsilon": facts.spent_epsilon == handover.spent_epsilon,
        "the ledger counts other reports": facts.reports == len(ids),
        "the ledger's root is of other ids": facts.ids_root == Tree(ids).root,
    }
    return next((rule for rule, holds in rules.items() if not holds), None)


def _entry_fault(entry: Entry, ids: tuple[bytes, ...]) -> str | None:
    checksum = 0
    for each in ids:
        checksum ^= int.from_bytes(hashlib.sha256(each).digest(), "big")
    if len(ids) != entry.weight:
        return f"an entry of {entry.weight} reports names {len(ids)} ids"
    if checksum.to_bytes(32, "big") != entry.id_checksum:
        return "an entry's checksum is not that of its ids"
    if Tree(sorted(ids)).root != entry.ids_root:
        return "an entry's root is not that of its ids"
    return None


def _refusal(why: str) -> HandoverError:
    return HandoverError(f"The hand-over is refused: {why.removesuffix('.')}.", remedy=_ASK_AGAIN)
