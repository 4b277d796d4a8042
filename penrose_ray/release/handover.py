"""The hand-over: the sums of one batch as the design server gets them, gated and re-randomised."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import msgspec

from penrose_ray.crypto.packing import pack
from penrose_ray.errors import GateError, ReleaseFormatError
from penrose_ray.release.gate import passes
from penrose_ray.release.merkle import Tree
from penrose_ray.release.noise import discrete_gaussian, noise_slots
from penrose_ray.release.sub_batches import bundled
from penrose_ray.types import BatchId, ClassId, TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from penrose_ray.crypto.accumulate import Accumulators
    from penrose_ray.crypto.blinding import Encryptor
    from penrose_ray.crypto.plain import PlainAccumulators, PlainEncryptor
    from penrose_ray.task import Task
    from penrose_ray.types import ReportId

VERSION = 2
_CHECKSUM_BYTES = 32
_TASK_ID_BYTES = 32
_CLASS_ID_BYTES = 16
_ASK_AGAIN = "Ask the aggregation service for the release again, with the same version of penrose-ray."


class PartialSum(Protocol):
    """One shard's part of a sum."""

    @property
    def class_id(self) -> ClassId:
        """The snippet class."""
        ...

    @property
    def counter_set(self) -> int:
        """Position in the task's counter sets."""
        ...

    @property
    def batch(self) -> BatchId:
        """The batch."""
        ...

    @property
    def weight(self) -> int:
        """Reports in it."""
        ...

    @property
    def blob(self) -> bytes:
        """The ciphertexts."""
        ...

    @property
    def id_checksum(self) -> bytes:
        """XOR of the SHA-256 of the reports' ids, 32 bytes."""
        ...

    @property
    def keep_share(self) -> float:
        """Share of the class' reports that were kept."""
        ...

    @property
    def ids(self) -> tuple[ReportId, ...]:
        """Ids of the reports."""
        ...


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sum that passed the gate."""

    class_id: ClassId
    gpu_model: str
    counter_set: int
    weight: int
    blob: bytes
    id_checksum: bytes
    ids_root: bytes
    """Merkle root of the reports' ids in ascending order."""
    sub_batch: int = 0
    """Number among the sums of one class and counter set."""
    keep_share: float = 1.0
    """Share of this class' reports that the service kept under load, the others being dropped at random.

    Whoever opens the sum divides it by this to estimate the whole.
    """


class Withheld(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the gate kept back: how much, never which."""

    sums: int = 0
    """Sums, each of one class and counter set."""
    reports: int = 0


class Handover(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sums of one batch that may be decrypted, ordered by class, counter set and sub-batch."""

    task_id: TaskId
    batch: BatchId
    entries: tuple[Entry, ...]
    withheld: Withheld
    spent_epsilon: float = 0.0
    """What noisy releases of the task have spent, this one included; the desk fills it in."""

    def encode(self) -> bytes:
        """Canonical encoding: version byte, then MessagePack with the fields in declared order."""
        return bytes([VERSION]) + msgspec.msgpack.encode(self)


def decode(raw: bytes) -> Handover:
    """Read `Handover.encode()` back.

    Raises:
        ReleaseFormatError: another version, malformed, or not canonical.
    """
    if raw[:1] != bytes([VERSION]):
        raise ReleaseFormatError(
            f"This hand-over has version {raw[:1].hex() or 'none'}, this program reads {VERSION}.",
            remedy=_ASK_AGAIN,
        )
    try:
        handover = msgspec.msgpack.decode(raw[1:], type=Handover)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ReleaseFormatError(f"These bytes are not a hand-over: {error}.", remedy=_ASK_AGAIN) from error
    if handover.encode() != raw:
        raise ReleaseFormatError("This hand-over is not in canonical encoding.", remedy=_ASK_AGAIN)
    if fault := _fault(handover):
        raise ReleaseFormatError(f"This hand-over is inconsistent: {fault}.", remedy=_ASK_AGAIN)
    return handover


def _fault(handover: Handover) -> str | None:
    entries, withheld = handover.entries, handover.withheld
    keys = [(each.class_id, each.counter_set, each.sub_batch) for each in entries]
    rules = {
        f"a task id has {_TASK_ID_BYTES} bytes": len(handover.task_id) == _TASK_ID_BYTES,
        f"class ids have {_CLASS_ID_BYTES} bytes, checksums and roots {_CHECKSUM_BYTES}": all(
            (len(each.class_id), len(each.id_checksum), len(each.ids_root))
            == (_CLASS_ID_BYTES, _CHECKSUM_BYTES, _CHECKSUM_BYTES)
            for each in entries
        ),
        "an entry is empty": all(each.weight > 0 and each.counter_set >= 0 and each.blob for each in entries),
        "a keep share is above 0, up to 1": all(0 < each.keep_share <= 1 for each in entries),
        "entries are out of order": keys == sorted(set(keys)),
        "a count is negative": min(withheld.sums, withheld.reports) >= 0,
        "an epsilon is a number from 0 on": 0 <= handover.spent_epsilon < math.inf,
    }
    return next((rule for rule, holds in rules.items() if not holds), None)


@dataclass(frozen=True, slots=True)
class Made:
    """A hand-over and, entry by entry, the ids of the reports in it, ascending."""

    handover: Handover
    members: tuple[tuple[ReportId, ...], ...]

    def spending(self, epsilon: float) -> Made:
        """The same with what the task has spent."""
        return replace(self, handover=msgspec.structs.replace(self.handover, spent_epsilon=epsilon))

    @property
    def ids(self) -> tuple[ReportId, ...]:
        """All ids, ascending."""
        return tuple(sorted(each for ids in self.members for each in ids))


def build(
    task: Task,
    parts: Iterable[PartialSum],
    gpu_model_of: Callable[[ClassId], str],
    encryptor: Encryptor | PlainEncryptor,
    *,
    sample: Callable[[float], NDArray[np.int64]] = discrete_gaussian,
) -> Handover:
    """Merge the shards' parts per class and counter set, gate each sum, add noise, re-randomise what passes.

    Where one class has more reports than a sum may hold, parts that were thinned at different rates, or where
    the task asks for sub-batches, it gets several entries; each passes by itself.

    Raises:
        ValueError: there are no parts, or parts of several batches.
    """
    return make(task, parts, gpu_model_of, encryptor, sample=sample).handover


def make(
    task: Task,
    parts: Iterable[PartialSum],
    gpu_model_of: Callable[[ClassId], str],
    encryptor: Encryptor | PlainEncryptor,
    *,
    into: Mapping[ClassId, ClassId] | None = None,
    sample: Callable[[float], NDArray[np.int64]] = discrete_gaussian,
) -> Made:
    """Like `build`, with the ids of what passed; `into` says what class another one was merged into.

    A merged sum needs reports for each of its classes: a client may have reported all of them. So does one
    whose reports came after the merge, which all stand under the class that was kept.
    """
    merged = Counter(_last(each, into or {}) for each in into or {})
    grouped: dict[tuple[ClassId, int], dict[float, list[PartialSum]]] = defaultdict(lambda: defaultdict(list))
    batches = set()
    for part in parts:
        grouped[_last(part.class_id, into or {}), part.counter_set][part.keep_share].append(part)
        batches.add(part.batch)
    if len(batches) != 1:
        raise ValueError(f"a hand-over is of one batch, got parts of {sorted(batches)}")
    passing: list[tuple[ClassId, int, list[PartialSum]]] = []
    withheld: list[int] = []
    for (class_id, _), shares in sorted(grouped.items()):
        classes = 1 + merged[class_id]
        bundles = [one for _, group in sorted(shares.items()) for one in bundled(task, group, classes)]
        passed = [bundle for bundle in bundles if _passes(task, bundle, classes)]
        withheld.extend(_weight(bundle) for bundle in bundles if not _passes(task, bundle, classes))
        passing.extend((class_id, number, bundle) for number, bundle in enumerate(passed))
    seal = _Seal(task, gpu_model_of, encryptor, sample)
    handover = Handover(
        task_id=task.task_id,
        batch=batches.pop(),
        entries=tuple(seal.entry(*each) for each in passing),
        withheld=Withheld(sums=len(withheld), reports=sum(withheld)),
    )
    return Made(handover, tuple(_ids(bundle) for _, _, bundle in passing))


def _last(class_id: ClassId, into: Mapping[ClassId, ClassId]) -> ClassId:
    seen = {class_id}
    while class_id in into:
        class_id = into[class_id]
        if class_id in seen:
            raise ValueError(f"class {class_id.hex()} is merged into itself")
        seen.add(class_id)
    return class_id


def _passes(task: Task, bundle: list[PartialSum], classes: int) -> bool:
    try:
        passes(task, _weight(bundle), classes)
    except GateError:
        return False
    return True


@dataclass(frozen=True)
class _Seal:
    """Makes entries out of bundles that have passed."""

    task: Task
    gpu_model_of: Callable[[ClassId], str]
    encryptor: Encryptor | PlainEncryptor
    sample: Callable[[float], NDArray[np.int64]]

    def entry(self, class_id: ClassId, sub_batch: int, bundle: list[PartialSum]) -> Entry:
        first = bundle[0]
        return Entry(
            class_id=class_id,
            gpu_model=self.gpu_model_of(class_id),
            counter_set=first.counter_set,
            weight=_weight(bundle),
            blob=self._merged(bundle),
            id_checksum=_xor(part.id_checksum for part in bundle),
            ids_root=Tree(_ids(bundle)).root,
            sub_batch=sub_batch,
            keep_share=first.keep_share,
        )

    def _merged(self, parts: list[PartialSum]) -> bytes:
        task = self.task
        sums: Accumulators[None] | PlainAccumulators[None] = task.cipher().accumulators(task.capacity())
        for part in parts:
            sums.merge(None, part.blob, part.weight)
        if not task.noise_sigma:
            return self.encryptor.rerandomise(sums.to_bytes(None))
        noise = noise_slots(task, self.sample)  # freshly encrypted, so the sum is re-randomised with it
        sums.add_noise(None, self.encryptor.encrypt(pack(noise, task.profile())))
        return sums.to_bytes(None)


def _ids(bundle: Iterable[PartialSum]) -> tuple[ReportId, ...]:
    return tuple(sorted(each for part in bundle for each in part.ids))


def _weight(bundle: Iterable[PartialSum]) -> int:
    return sum(part.weight for part in bundle)


def _xor(checksums: Iterable[bytes]) -> bytes:
    total = 0
    for checksum in checksums:
        total ^= int.from_bytes(checksum, "big")
    return total.to_bytes(_CHECKSUM_BYTES, "big")


class Releases:
    """A directory of hand-overs; `desk.Desk` alone adds to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, task_id: TaskId, batch: BatchId) -> Path:
        """Where the hand-over of a batch lies, or would lie."""
        return self._directory / f"{task_id.hex()}-{batch}.handover"

    def batches(self, task_id: TaskId) -> frozenset[BatchId]:
        """Batches of a task whose hand-over is stored, whether it can be read or not."""
        found = self._directory.glob(f"{task_id.hex()}-*.handover")
        numbers = (each.stem.rpartition("-")[2] for each in found)
        return frozenset(BatchId(int(number)) for number in numbers if number.isdecimal())

    def find(self, task_id: TaskId, batch: BatchId) -> Handover | None:
        """The stored hand-over of a batch.

        Raises:
            ReleaseFormatError: the file is damaged or of another version.
        """
        try:
            raw = self.path(task_id, batch).read_bytes()
        except FileNotFoundError:
            return None
        return decode(raw)
