"""The release desk: budget, noise, gate, ledger and hand-over in the one order that no crash can upset.

The budget is booked first. Then the hand-over is prepared on disk under a name that nobody fetches, then
its ledger entry is signed and synced, then the name appears. After a crash the next call goes on where it
stopped: an entry without hand-over publishes the prepared bytes, prepared bytes without entry are made
again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from typing import TYPE_CHECKING, Final

import msgspec

from penrose_ray.errors import BudgetError, GateError, LedgerError, ReleaseFormatError
from penrose_ray.release.approval import PartialsRequest
from penrose_ray.release.budget import Budget
from penrose_ray.release.handover import Handover, Made, Releases
from penrose_ray.release.ledger import Facts, Ledger, Line, ledger_key, read_lines, sync_directory
from penrose_ray.release.merkle import Proof, Tree
from penrose_ray.release.rules import policy_hash
from penrose_ray.types import BatchId, ReportId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.clock import Clock
    from penrose_ray.task import Task

LATE_S: Final = 36 * 3600
"""A report may arrive so long after its batch; until then a batch of a task with tokens is not released, so
that no later batch takes tokens of this one's days."""
_ID_BYTES: Final = 32


class Desk:
    """Releases of one task in one directory; several processes take turns."""

    def __init__(self, directory: Path, task: Task, clock: Clock, *, quote: bytes = b"") -> None:
        self._directory = directory
        self._task = task
        self._clock = clock
        self._quote = quote
        self.releases = Releases(directory)
        self._key = ledger_key(directory / "ledger.key")

    @property
    def ledger_path(self) -> Path:
        """The ledger of this task."""
        return self._directory / f"{self._task.task_id.hex()}.ledger"

    @property
    def signer(self) -> bytes:
        """The ledger's public key, by which clients, gatekeeper and design server pin it."""
        return self._key.public_key().public_bytes_raw()

    def due(self, batch: BatchId) -> bool:
        """Whether a batch may be closed: no report can still arrive, or it is a demo without tokens."""
        if not self._task.tokens_per_day:
            return True
        return self._clock.now_s() >= (batch + 1) * self._task.batch_s + LATE_S

    def release(self, batch: BatchId, make: Callable[[], Made]) -> Handover:
        """The stored hand-over of a batch, or what `make` returns after it is booked, written and signed for.

        Raises:
            GateError: reports of the batch may still arrive.
            BudgetError: there is not enough budget left; the refusal is in the ledger.
            ClockError, LedgerError, ReleaseFormatError: as named.
            ValueError: `make` made a hand-over of another task or batch.
        """
        with self._turn():
            if stored := self.releases.find(self._task.task_id, batch):
                return stored
            ledger = Ledger(self.ledger_path, self._task.task_id, self._key, self._clock, quote=self._quote)
            if line := ledger.released(batch):
                return self._publish(batch, line.check().facts.handover_hash)
            self._require_due(batch)
            spent = self._spend(batch, ledger)
            made = make().spending(spent)
            if (made.handover.task_id, made.handover.batch) != (self._task.task_id, batch):
                raise ValueError(f"asked for batch {batch}, got batch {made.handover.batch} or another task")
            raw = made.handover.encode()
            self._write(self._prepared(batch), raw)
            self._write(self.members_path(batch), msgspec.msgpack.encode(made.members))
            ledger.append(self._facts(made))
            return self._publish(batch, hashlib.sha256(raw).digest())

    def _require_due(self, batch: BatchId) -> None:
        if not self.due(batch):
            raise GateError(
                f"Reports of batch {batch} may still arrive.",
                remedy="Wait: with tokens a batch is released 36 h after its end, else once it has begun.",
            )

    def _spend(self, batch: BatchId, ledger: Ledger) -> float:
        if not self._task.noise_sigma:
            return 0.0
        with contextlib.closing(Budget(self._directory / "budget.sqlite")) as budget:
            try:
                return budget.spend(self._task, batch)
            except BudgetError as error:
                ledger.append(Facts(kind="refused", batch=batch, reason=error.code))
                raise

    def _facts(self, made: Made) -> Facts:
        entries, withheld = made.handover.entries, made.handover.withheld
        checksum = checksum_of_ids = 0
        for entry in entries:
            checksum ^= int.from_bytes(entry.id_checksum, "big")
        for each in made.ids:
            checksum_of_ids ^= int.from_bytes(hashlib.sha256(each).digest(), "big")
        if (checksum, sum(entry.weight for entry in entries)) != (checksum_of_ids, len(set(made.ids))):
            raise LedgerError(
                f"The shards' ids of batch {made.handover.batch} do not agree with their sums.",
                remedy="Check the shards' journals; nothing was handed over.",
            )
        return Facts(
            kind="release",
            batch=made.handover.batch,
            sums=len(entries),
            reports=sum(entry.weight for entry in entries),
            withheld_sums=withheld.sums,
            withheld_reports=withheld.reports,
            id_checksum=checksum.to_bytes(_ID_BYTES, "big"),
            ids_root=Tree(made.ids).root,
            handover_hash=hashlib.sha256(made.handover.encode()).digest(),
            policy_hash=policy_hash(self._task),
            noise_sigma=self._task.noise_sigma,
            spent_epsilon=made.handover.spent_epsilon,
            drop_rate=1 - min((entry.keep_share for entry in entries), default=1.0),
        )

    def _publish(self, batch: BatchId, wanted: bytes) -> Handover:
        prepared = self._prepared(batch)
        raw = prepared.read_bytes() if prepared.exists() else b""
        if hashlib.sha256(raw).digest() != wanted:
            raise LedgerError(
                f"The ledger has released batch {batch}, and its prepared hand-over is gone or altered.",
                remedy="Restore the release directory from its backup.",
            )
        prepared.rename(self.releases.path(self._task.task_id, batch))
        sync_directory(self._directory)
        stored = self.releases.find(self._task.task_id, batch)
        if stored is None:
            raise ReleaseFormatError("The hand-over vanished.", remedy="Check the disk.")
        return stored

    def prove(self, report_id: bytes) -> Inclusion:
        """The proof that a report was released, from the latest batch that has it.

        Raises:
            LedgerError: no release has it.
        """
        raw = self.ledger_path.read_bytes() if self.ledger_path.exists() else b""
        for line in reversed(read_lines(raw)):
            facts = line.check(self.signer).facts
            if facts.kind == "release":
                members = self.members_path(BatchId(facts.batch)).read_bytes()
                with contextlib.suppress(LedgerError):
                    return Prover(line, members).prove(ReportId(report_id))
        raise LedgerError(
            f"Report {report_id.hex()[:16]} is in no release.",
            remedy="Its class had too few reports, it came late, or it was dropped under load.",
        )

    def _prepared(self, batch: BatchId) -> Path:
        return self._directory / f".{self._task.task_id.hex()}-{batch}.prepared"

    def members_path(self, batch: BatchId) -> Path:
        """Ids of a batch's reports, entry by entry: for inclusion proofs and the gatekeeper."""
        return self._directory / f"{self._task.task_id.hex()}-{batch}.members"

    def request(self, batch: BatchId) -> bytes:
        """What the gatekeeper is asked with, for a batch that is released.

        Raises:
            ReleaseFormatError: it is not.
        """
        handover = self.releases.find(self._task.task_id, batch)
        if handover is None:
            raise ReleaseFormatError(f"Batch {batch} is not released.", remedy="Release it first.")
        members = read_members(self.members_path(batch).read_bytes())
        lines = tuple(read_lines(self.ledger_path.read_bytes()))
        return PartialsRequest(handover=handover.encode(), members=members, ledger=lines).encode()

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        handle = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def _write(self, path: Path, raw: bytes) -> None:
        unfinished = path.with_name(f"{path.name}.part")
        with unfinished.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_directory(self._directory)


def read_members(raw: bytes) -> tuple[tuple[ReportId, ...], ...]:
    """The content of a `members` file.

    Raises:
        ReleaseFormatError: it is damaged.
    """
    try:
        return msgspec.msgpack.decode(raw, type=tuple[tuple[ReportId, ...], ...])
    except msgspec.MsgspecError as error:
        raise ReleaseFormatError(
            f"The ids of this release are damaged: {error}.", remedy="Restore them from backup."
        ) from error


class Inclusion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """That a report is in a release: the ledger's line and the path to its root."""

    line: Line
    proof: Proof

    def check(self, report_id: ReportId, *, signer: bytes) -> None:
        """Raise LedgerError unless the signer of the ledger says that this report was released."""
        entry = self.line.check(signer)
        self.proof.check(report_id, entry.facts.ids_root)


class Prover:
    """Inclusion proofs for the reports of one batch; the tree is built once."""

    def __init__(self, line: Line, members: bytes) -> None:
        self._line = line
        found = sorted(each for ids in read_members(members) for each in ids)
        self._tree = Tree(found)
        self._place = {each: at for at, each in enumerate(found)}

    def prove(self, report_id: ReportId) -> Inclusion:
        """Raises LedgerError when the report is not in the batch."""
        if report_id not in self._place:
            raise LedgerError(
                f"Report {report_id.hex()[:16]} is in no release of this batch.",
                remedy="Its class had too few reports, it came late, or it was dropped under load.",
            )
        return Inclusion(line=self._line, proof=self._tree.prove(self._place[report_id]))
