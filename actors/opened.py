"""Opened releases as files, and hand-overs that another machine's service wrote, opened each once.

Nothing here reads a key: whoever can decrypt hands itself in as a `Decryptor`.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penrose_ray.errors import HandoverError, LedgerError, ReleaseFormatError
from penrose_ray.opening import discarded_lines, open_sums, write_parquet
from penrose_ray.release.budget import Budget
from penrose_ray.release.handover import decode
from penrose_ray.release.memory import Memory
from penrose_ray.release.published import Published
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penrose_ray.opening import Decryptor, Opening
    from penrose_ray.release.handover import Handover
    from penrose_ray.task import Task

DISCARDED = "discarded.jsonl"
"""Sums that were opened and not kept, beside the releases."""


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """Where the opened release lies, and what is in it."""

    path: Path
    histograms: int
    reports: int
    real_reports: int
    discarded: tuple[str, ...]

    def row(self) -> dict[str, object]:
        """The same for a table."""
        return {
            "path": str(self.path),
            "histograms": self.histograms,
            "reports": self.reports,
            "discarded": len(self.discarded),
        }


def written(openings: Sequence[Opening], path: Path, directory: Path) -> OpenedFile:
    """Openings as one Parquet file; what was discarded is booked in `directory`."""
    write_parquet(openings, path)
    _book(openings, directory)
    return _opened_file(openings, path)


def opened(task: Task, handover: Handover, decryptor: Decryptor) -> Opening:
    """A hand-over's sums, decrypted and checked.

    Raises:
        ReleaseFormatError: it is of another task.
        WrongKeyError: sealed for another key.
    """
    _require_task(task, handover)
    spent = handover.spent_epsilon
    return open_sums(task, handover.batch, handover.entries, decryptor, spent_epsilon=spent)


def _opened_file(openings: Sequence[Opening], path: Path) -> OpenedFile:
    sums = [each for opening in openings for each in opening.sums]
    return OpenedFile(
        path=path,
        histograms=len(sums),
        reports=sum(each.reports for each in sums),
        real_reports=sum(each.real_reports for each in sums),
        discarded=tuple(
            f"class {each.class_id.hex()[:8]}, {each.counter_set}, sub-batch {each.sub_batch}: {each.error}"
            for opening in openings
            for each in opening.discarded
        ),
    )


def _book(openings: Sequence[Opening], directory: Path) -> None:
    """Keep a line for each sum that was discarded: which and why, nothing of its content."""
    lines = [line for opening in openings for line in discarded_lines(opening)]
    if lines:
        directory.mkdir(parents=True, exist_ok=True)
        with (directory / DISCARDED).open("a") as file:
            file.writelines(f"{json.dumps(line)}\n" for line in lines)


def _require_task(task: Task, handover: Handover) -> None:
    if handover.task_id != task.task_id:
        raise ReleaseFormatError(
            f"The hand-over is of task {handover.task_id.hex()[:16]}, not of {task.task_id.hex()[:16]}.",
            remedy="Open it with the design server that published the task.",
        )


class Opener:
    """A design server on a machine of its own; hand-overs reach it as files.

    Each has to agree with its task, its reports' ids and the ledger, and is noted before it is decrypted.

    Args:
        task: whose hand-overs.
        decryptor: whoever holds the private key.
        ledger_signer: the pinned key of the service's ledger, 32 bytes.
        directory: for Parquet files, notes and the privacy budget; never the one that the service writes.
    """

    def __init__(self, task: Task, decryptor: Decryptor, ledger_signer: bytes, directory: Path) -> None:
        self._task = task
        self._decryptor = decryptor
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._memory = Memory(task, ledger_signer, directory / f"{task.task_id.hex()}.notes")

    def open(self, place: Path) -> list[OpenedFile]:
        """Open one hand-over, or all of a directory that are in its ledger and not opened yet.

        Raises:
            HandoverError: it is altered, does not agree with ids or ledger, or was opened before.
            ReleaseFormatError: it is of another task, damaged, or of another version.
            LedgerError: there is no ledger of the task, or its signatures are wrong.
            BudgetError: its noise would spend more than the task's epsilon.
            WrongKeyError: sealed for another key.
        """
        if place.is_dir():
            return self._open_new(Published(place, self._task))
        raw = _read(place)
        handover = decode(raw)
        _require_task(self._task, handover)
        path = self._path(handover.batch)
        if self._memory.has(handover.batch, hashlib.sha256(raw).digest()) and path.exists():
            raise HandoverError(
                f"Batch {handover.batch} was opened before: {path}.",
                remedy="Read that file; nothing is spent twice.",
            )
        return [self._open_one(Published(place.parent, self._task), raw)]

    def _open_new(self, published: Published) -> list[OpenedFile]:
        if not published.ledger_path.exists():
            raise LedgerError(
                f"There is no ledger {published.ledger_path}.",
                remedy="Copy the service's directory of releases whole, and give the task that it serves.",
            )
        found = []
        for facts in published.facts():
            path = published.releases.path(self._task.task_id, BatchId(facts.batch))
            if facts.kind != "release" or not path.exists():  # its copy may have begun before it was there
                continue
            raw = path.read_bytes()
            known = self._memory.has(BatchId(facts.batch), hashlib.sha256(raw).digest())
            if not known or not self._path(BatchId(facts.batch)).exists():
                found.append(self._open_one(published, raw))
        return found

    def _open_one(self, published: Published, raw: bytes) -> OpenedFile:
        handover = self._memory.take(published.request_of(raw)).handover
        if self._task.noise_sigma and handover.entries:
            with closing(Budget(self._directory / "budget.sqlite")) as budget:
                budget.spend(self._task, handover.batch)
        opening = opened(self._task, handover, self._decryptor)
        return written([opening], self._path(handover.batch), self._directory)

    def _path(self, batch: BatchId) -> Path:
        return self._directory / f"{self._task.task_id.hex()}-{batch}.parquet"

    def close(self) -> None:
        """Close the notes."""
        self._memory.close()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ReleaseFormatError(f"{path} cannot be read: {error}.", remedy="Check the path.") from error
