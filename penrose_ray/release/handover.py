"""The hand-over: the sums of one batch as the design server gets them, gated and re-randomised."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import defaultdict
from typing import TYPE_CHECKING, Protocol

import msgspec

from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.errors import GateError, ReleaseFormatError
from penrose_ray.release.gate import passes
from penrose_ray.types import BatchId, ClassId, TaskId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from penrose_ray.crypto.blinding import Encryptor
    from penrose_ray.task import Task

VERSION = 1
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


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One sum that passed the gate."""

    class_id: ClassId
    gpu_model: str
    counter_set: int
    weight: int
    blob: bytes
    id_checksum: bytes


class Withheld(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the gate kept back: how much, never which."""

    sums: int = 0
    """Sums, each of one class and counter set."""
    reports: int = 0


class Handover(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sums of one batch that may be decrypted, ordered by class and counter set."""

    task_id: TaskId
    batch: BatchId
    entries: tuple[Entry, ...]
    withheld: Withheld

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
    entries = handover.entries
    if len(handover.task_id) != _TASK_ID_BYTES:
        return f"a task id has {_TASK_ID_BYTES} bytes"
    if any(
        len(each.class_id) != _CLASS_ID_BYTES or len(each.id_checksum) != _CHECKSUM_BYTES for each in entries
    ):
        return f"class ids have {_CLASS_ID_BYTES} bytes, checksums {_CHECKSUM_BYTES}"
    if any(each.weight < 1 or each.counter_set < 0 or not each.blob for each in entries):
        return "an entry is empty"
    keys = [(each.class_id, each.counter_set) for each in entries]
    if keys != sorted(keys):
        return "entries are out of order"
    if min(handover.withheld.sums, handover.withheld.reports) < 0:
        return "a count is negative"
    return None


def build(
    task: Task, parts: Iterable[PartialSum], gpu_model_of: Callable[[ClassId], str], encryptor: Encryptor
) -> Handover:
    """Merge the shards' parts per class and counter set, gate each sum, re-randomise what passes.

    Where one class has more reports than a sum may hold, it gets several entries; each passes by itself.

    Raises:
        ValueError: there are no parts, or parts of several batches.
    """
    grouped: dict[tuple[ClassId, int], list[PartialSum]] = defaultdict(list)
    batches = set()
    for part in parts:
        grouped[part.class_id, part.counter_set].append(part)
        batches.add(part.batch)
    if len(batches) != 1:
        raise ValueError(f"a hand-over is of one batch, got parts of {sorted(batches)}")
    entries: list[Entry] = []
    kept_back: list[int] = []
    for (class_id, counter_set), group in sorted(grouped.items()):
        for bundle in _bundles(group, task.capacity()):
            weight = sum(part.weight for part in bundle)
            try:
                passes(task, weight)
            except GateError:
                kept_back.append(weight)
                continue
            blob = encryptor.rerandomise(_merged(task, bundle))
            entries.append(
                Entry(
                    class_id=class_id,
                    gpu_model=gpu_model_of(class_id),
                    counter_set=counter_set,
                    weight=weight,
                    blob=blob,
                    id_checksum=_xor(part.id_checksum for part in bundle),
                )
            )
    return Handover(
        task_id=task.task_id,
        batch=batches.pop(),
        entries=tuple(entries),
        withheld=Withheld(sums=len(kept_back), reports=sum(kept_back)),
    )


def _bundles(parts: list[PartialSum], capacity: int) -> list[list[PartialSum]]:
    """Parts that go into one ciphertext: the largest first, each where it still fits."""
    bundles: list[list[PartialSum]] = []
    for part in sorted(parts, key=lambda each: -each.weight):
        for bundle in bundles:
            if sum(each.weight for each in bundle) + part.weight <= capacity:
                bundle.append(part)
                break
        else:
            bundles.append([part])
    return bundles


def _merged(task: Task, parts: list[PartialSum]) -> bytes:
    accumulator = Accumulator(task.key(), task.profile(), capacity=task.capacity())
    for part in parts:
        accumulator.merge(part.blob, part.weight)
    return accumulator.to_bytes()


def _xor(checksums: Iterable[bytes]) -> bytes:
    total = 0
    for checksum in checksums:
        total ^= int.from_bytes(checksum, "big")
    return total.to_bytes(_CHECKSUM_BYTES, "big")


class Releases:
    """A directory of hand-overs: each batch is handed over once, and the same bytes ever after."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, task_id: TaskId, batch: BatchId) -> Path:
        """Where the hand-over of a batch lies, or would lie."""
        return self._directory / f"{task_id.hex()}-{batch}.handover"

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

    def obtain(self, task_id: TaskId, batch: BatchId, make: Callable[[], Handover]) -> Handover:
        """The stored hand-over, or what `make` returns after it is on disk.

        Raises:
            ReleaseFormatError: the stored file is damaged or of another version.
            ValueError: `make` made a hand-over of another task or batch.
        """
        return self.find(task_id, batch) or self._store(task_id, batch, make())

    def _store(self, task_id: TaskId, batch: BatchId, handover: Handover) -> Handover:
        if (handover.task_id, handover.batch) != (task_id, batch):
            raise ValueError(f"asked for batch {batch}, got batch {handover.batch} or another task")
        with tempfile.NamedTemporaryFile(dir=self._directory, suffix=".part") as part:
            part.write(handover.encode())
            part.flush()
            os.fsync(part.fileno())
            with contextlib.suppress(FileExistsError):  # another process was first: its bytes count
                os.link(part.name, self.path(task_id, batch))
        handle = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return self.find(task_id, batch) or handover
