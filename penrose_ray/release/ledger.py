"""The ledger: what left the service, line by line, each chained to the one before and signed.

One JSON line an entry: its canonical bytes (Base64) and their Ed25519 signature. A line is on disk before the
hand-over that it speaks of can be fetched. Cutting whole lines off the end leaves a valid, shorter ledger:
whoever notes a head (index and hash) finds that out.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from penrose_ray.crypto.secretfile import LEDGER_KEY, body_of, own_secret
from penrose_ray.durable import append
from penrose_ray.errors import ClockError, LedgerError

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.clock import Clock
    from penrose_ray.types import BatchId, TaskId

VERSION: Final = 1
_CONTEXT: Final = b"penrose-ray ledger v1\x00"
_KEEP: Final = "Keep the file as evidence and compare it with the heads that others have noted."


class Facts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an entry says of one batch."""

    kind: Literal["head", "release", "refused"]
    batch: int = 0
    sums: int = 0
    reports: int = 0
    withheld_sums: int = 0
    withheld_reports: int = 0
    id_checksum: bytes = b""
    """XOR of the SHA-256 of the ids of all reports handed over."""
    ids_root: bytes = b""
    """Merkle root of these ids in ascending order."""
    handover_hash: bytes = b""
    """SHA-256 of the hand-over's bytes."""
    policy_hash: bytes = b""
    """SHA-256 of the gate's and the noise's parameters."""
    noise_sigma: float = 0.0
    spent_epsilon: float = 0.0
    """What all noisy releases of the task up to this one have spent, at the task's delta."""
    drop_rate: float = 0.0
    """Largest share of a class' reports that was dropped under load."""
    quote: bytes = b""
    """In the head: the machine's TPM quote, if it has one."""
    reason: str = ""
    """Why a release was refused."""


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One signed line."""

    version: int
    index: int
    previous: bytes
    """SHA-256 of the entry before; zeros in the first."""
    task_id: bytes
    time_s: int
    signer: bytes
    facts: Facts

    def encode(self) -> bytes:
        """The bytes that are signed and chained: MessagePack, fields in declared order."""
        return msgspec.msgpack.encode(self)

    @property
    def hash(self) -> bytes:
        """SHA-256 of the encoding."""
        return hashlib.sha256(self.encode()).digest()


class Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entry with its signature, as it stands in the file and goes to a gatekeeper."""

    entry: bytes
    signature: bytes

    def encode(self) -> bytes:
        """One line of JSON, with its end."""
        return msgspec.json.encode(self) + b"\n"

    def check(self, signer: bytes | None = None) -> LedgerEntry:
        """The entry, after its signature was checked.

        Raises:
            LedgerError: malformed, or signed by another key or not at all.
        """
        try:
            entry = msgspec.msgpack.decode(self.entry, type=LedgerEntry)
            key = Ed25519PublicKey.from_public_bytes(signer or entry.signer)
            key.verify(self.signature, _CONTEXT + self.entry)
        except (msgspec.MsgspecError, InvalidSignature, ValueError) as error:
            raise LedgerError(
                "An entry of the ledger is not signed by the expected key, or is damaged.",
                remedy=_KEEP,
            ) from error
        if entry.encode() != self.entry or entry.version != VERSION:
            raise LedgerError("An entry is of another version, or not canonical.", remedy=_KEEP)
        return entry


def read_lines(raw: bytes) -> list[Line]:
    """The lines of a ledger's file.

    Raises:
        LedgerError: a line is not one.
    """
    try:
        return [msgspec.json.decode(each, type=Line) for each in raw.splitlines() if each]
    except msgspec.MsgspecError as error:
        raise LedgerError(f"A line of the ledger is damaged: {error}.", remedy=_KEEP) from error


def check_chain(lines: list[Line], *, signer: bytes | None = None) -> list[LedgerEntry]:
    """All entries, after every signature and every link was checked.

    Args:
        lines: the whole ledger.
        signer: the pinned key; None takes the first entry's word for all.

    Raises:
        LedgerError: names the first entry that is wrong.
    """
    if signer is not None and lines:
        _require_signer(lines[0], signer)
    entries: list[LedgerEntry] = []
    previous = bytes(32)
    for index, line in enumerate(lines):
        entry = line.check(signer or (entries[0].signer if entries else None))
        if (entry.index, entry.previous) != (index, previous):
            raise LedgerError(f"Entry {index} does not follow the one before it.", remedy=_KEEP)
        if entries and (entry.time_s < entries[-1].time_s or entry.task_id != entries[0].task_id):
            raise LedgerError(f"Entry {index} goes back in time, or is of another task.", remedy=_KEEP)
        entries.append(entry)
        previous = entry.hash
    return entries


def _require_signer(line: Line, signer: bytes) -> None:
    """Tell a ledger of another key from one that is damaged: it agrees with the key that it names."""
    try:
        own = line.check().signer
    except LedgerError:
        return
    if own != signer:
        raise LedgerError(
            f"The ledger is not signed by the pinned {signer.hex()}, but by {own.hex()}.",
            remedy="Pin the ledger's key, which penrose up and penrose release list print; the design "
            f"server's, of penrose keys show, is another one. {_KEEP}",
        )


class Ledger:
    """The file of one task; the caller makes sure that one process at a time appends.

    Raises:
        LedgerError: the file is not what this key signed.
    """

    def __init__(
        self, path: Path, task_id: TaskId, key: Ed25519PrivateKey, clock: Clock, *, quote: bytes = b""
    ) -> None:
        self.path = path
        self._task_id = task_id
        self._key = key
        self._clock = clock
        self.signer = key.public_key().public_bytes_raw()
        raw = path.read_bytes() if path.exists() else b""
        whole = raw[: raw.rfind(b"\n") + 1]
        if whole != raw:  # cut short by a crash: nothing was handed over on its word
            os.truncate(path, len(whole))
        self._lines = read_lines(whole)
        self.entries = check_chain(self._lines, signer=self.signer)
        if not self.entries:
            self.append(Facts(kind="head", quote=quote))

    def append(self, facts: Facts) -> Line:
        """Sign an entry and have it on disk.

        Raises:
            ClockError: the clock is behind the last entry.
        """
        last = self.entries[-1] if self.entries else None
        time_s = int(self._clock.now_s())
        if last and time_s < last.time_s:
            raise ClockError(
                f"The clock says {time_s}, the ledger's last entry was written at {last.time_s}.",
                remedy="Set the clock of the release desk's machine.",
            )
        entry = LedgerEntry(
            version=VERSION,
            index=len(self.entries),
            previous=last.hash if last else bytes(32),
            task_id=self._task_id,
            time_s=time_s,
            signer=self.signer,
            facts=facts,
        )
        body = entry.encode()
        line = Line(body, self._key.sign(_CONTEXT + body))
        append(self.path, line.encode())
        self._lines.append(line)
        self.entries.append(entry)
        return line

    def released(self, batch: BatchId) -> Line | None:
        """The line of a batch's release."""
        pairs = zip(self.entries, self._lines, strict=True)
        return next((line for e, line in pairs if (e.facts.kind, e.facts.batch) == ("release", batch)), None)


def ledger_key(path: Path) -> Ed25519PrivateKey:
    """The signing key in that file; a new one is made where there is none.

    Raises:
        KeyPermissionError, KeyFormatError: as `read_secret`.
    """
    raw = own_secret(path, LEDGER_KEY, lambda: Ed25519PrivateKey.generate().private_bytes_raw())
    with body_of(path):
        return Ed25519PrivateKey.from_private_bytes(raw)
