"""What a release desk has put on disk: ledger, hand-overs, ids, proofs. Reading it needs no key."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from penrose_ray.errors import LedgerError, ReleaseFormatError, naming
from penrose_ray.release.approval import PartialsRequest
from penrose_ray.release.handover import Releases, decode
from penrose_ray.release.ledger import Line, check_chain, read_lines
from penrose_ray.release.merkle import Proof, Tree
from penrose_ray.types import BatchId, ReportId

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.release.ledger import Facts, LedgerEntry
    from penrose_ray.task import Task


class Published:
    """The releases of one task in one directory."""

    def __init__(self, directory: Path, task: Task) -> None:
        self._directory = directory
        self._task = task
        self.releases = Releases(directory)
        self._checked: tuple[bytes, list[tuple[Line, LedgerEntry]]] = b"", []
        self._last: tuple[bytes, Prover] | None = None

    @property
    def ledger_path(self) -> Path:
        """The ledger of this task."""
        return self._directory / f"{self._task.task_id.hex()}.ledger"

    def ledger(self) -> bytes:
        """The ledger as it is now; empty before the first release."""
        return self.ledger_path.read_bytes() if self.ledger_path.exists() else b""

    def lines(self) -> list[Line]:
        """The ledger's lines, none before the first release."""
        return read_lines(self.ledger())

    def _chain(self) -> list[tuple[Line, LedgerEntry]]:
        """Lines and what they say; a ledger is checked once, however many ask."""
        raw = self.ledger()
        if self._checked[0] != raw:
            with naming(self.ledger_path):
                lines = read_lines(raw)
                self._checked = raw, list(zip(lines, check_chain(lines), strict=True))
        return self._checked[1]

    def entries(self) -> list[LedgerEntry]:
        """The ledger's entries, each checked; raises LedgerError where it is damaged."""
        return [entry for _, entry in self._chain()]

    def facts(self) -> list[Facts]:
        """What the ledger says, entry by entry; raises LedgerError where it is damaged."""
        return [entry.facts for entry in self.entries()]

    def prove(self, report_id: bytes) -> Inclusion:
        """The proof that a report was released, from the latest batch that has it.

        Raises:
            LedgerError: no release has it.
        """
        for line, entry in reversed(self._chain()):
            facts = entry.facts
            if facts.kind != "release":
                continue
            members = self.members_path(BatchId(facts.batch)).read_bytes()
            if report_id in members:  # where it is not, no tree need be built
                with contextlib.suppress(LedgerError):
                    return self._prover(line, members).prove(ReportId(report_id))
        raise _in_no_release(report_id)

    def _prover(self, line: Line, members: bytes) -> Prover:
        """That of the batch asked for last is kept: most ask for the latest one."""
        if self._last is None or self._last[0] != members:
            self._last = members, Prover(line, members)
        return self._last[1]

    def class_of(self, report_id: bytes) -> ReleasedClass:
        """The class of a released report: for whoever sent it, because nobody else knows its id.

        Raises:
            LedgerError: no release has it; a report that was withheld is not told from one that never came.
        """
        for facts in reversed(self.facts()):
            batch = BatchId(facts.batch)
            if facts.kind != "release" or not (made := self.releases.find(self._task.task_id, batch)):
                continue
            members = read_members(self.members_path(batch).read_bytes())
            for entry, ids in zip(made.entries, members, strict=True):
                if report_id in ids:
                    return ReleasedClass(
                        class_id=entry.class_id.hex(), gpu_model=entry.gpu_model, batch=facts.batch
                    )
        raise _in_no_release(report_id)

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
        return self.request_of(handover.encode())

    def request_of(self, handover: bytes) -> bytes:
        """A hand-over with what lies here to check it: the ids of its reports and the ledger.

        Raises:
            ReleaseFormatError: these bytes are no hand-over, or the ids are missing or damaged.
            LedgerError: a line of the ledger is damaged.
        """
        path = self.members_path(decode(handover).batch)
        try:
            members = read_members(path.read_bytes())
        except OSError as error:
            raise ReleaseFormatError(
                f"The ids of this release cannot be read: {error}.",
                remedy="Copy the directory of releases whole.",
            ) from error
        return PartialsRequest(handover=handover, members=members, ledger=tuple(self.lines())).encode()


def _in_no_release(report_id: bytes) -> LedgerError:
    return LedgerError(
        f"Report {report_id.hex()[:16]} is in no release.",
        remedy="Its class had too few reports, it came late, or it was dropped under load.",
    )


class ReleasedClass(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The class that a released report is of."""

    class_id: str
    """Hexadecimal, as in frames."""
    gpu_model: str
    batch: int


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
