"""The release desk: gate, noise, budget, ledger and hand-over in the one order that no crash can upset.

What passes the gate is made in memory. If there is anything, the budget is booked. Then the hand-over is
prepared on disk under a name that nobody fetches, then its ledger entry is signed and synced, then the name
appears. After a crash the next call goes on where it stopped: an entry without hand-over publishes the
prepared bytes, prepared bytes without entry are made again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from typing import TYPE_CHECKING, Final

import msgspec

from penrose_ray.crypto.secretfile import LEDGER_KEY, read_secret, write_secret
from penrose_ray.durable import replace, sync_directory
from penrose_ray.errors import BudgetError, GateError, LedgerError, ReleaseFormatError
from penrose_ray.release.budget import Budget
from penrose_ray.release.ledger import Facts, Ledger, ledger_key
from penrose_ray.release.merkle import Tree
from penrose_ray.release.published import Published
from penrose_ray.release.rules import policy_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.clock import Clock
    from penrose_ray.release.handover import Handover, Made
    from penrose_ray.task import Task
    from penrose_ray.types import BatchId

LATE_S: Final = 36 * 3600
"""A report may arrive so long after its batch; until then a batch of a task with tokens is not released, so
that no later batch takes tokens of this one's days."""
_ID_BYTES: Final = 32


class Desk(Published):
    """Releases of one task in one directory; several processes take turns.

    Args:
        directory: where hand-overs and their ledger lie.
        task: whose.
        clock: wall time.
        key_file: the ledger's signing key, made when missing; not among what others may fetch.
        quote: the machine's TPM quote for the task, which goes into the ledger's head.
    """

    def __init__(
        self, directory: Path, task: Task, clock: Clock, key_file: Path, *, quote: bytes = b""
    ) -> None:
        super().__init__(directory, task)
        self._clock = clock
        self._quote = quote
        _move_key(directory / "ledger.key", key_file)
        self._key = ledger_key(key_file)

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
            made = self._paid(batch, ledger, make)
            raw = made.handover.encode()
            replace(self._prepared(batch), raw)
            replace(self.members_path(batch), msgspec.msgpack.encode(made.members))
            ledger.append(self._facts(made))
            return self._publish(batch, hashlib.sha256(raw).digest())

    def _require_due(self, batch: BatchId) -> None:
        if not self.due(batch):
            raise GateError(
                f"Reports of batch {batch} may still arrive.",
                remedy="Wait: with tokens a batch is released 36 h after its end, else once it has begun.",
            )

    def _paid(self, batch: BatchId, ledger: Ledger, make: Callable[[], Made]) -> Made:
        """What `make` returns, with its cost booked; a batch of which nothing passes costs nothing."""
        task = self._task
        if not task.noise_sigma:
            return self._made(batch, make)
        with contextlib.closing(Budget(self._directory / "budget.sqlite")) as budget:
            try:
                budget.afford(task, batch)
                made = self._made(batch, make)
                spent = budget.spend(task, batch) if made.handover.entries else budget.spent(task)
                return made.spending(spent)
            except BudgetError as error:
                refusal = Facts(kind="refused", batch=batch, reason=error.code)
                if not any(entry.facts == refusal for entry in ledger.entries):
                    ledger.append(refusal)
                raise

    def _made(self, batch: BatchId, make: Callable[[], Made]) -> Made:
        made = make()
        if (made.handover.task_id, made.handover.batch) != (self._task.task_id, batch):
            raise ValueError(f"asked for batch {batch}, got batch {made.handover.batch} or another task")
        return made

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

    def _prepared(self, batch: BatchId) -> Path:
        return self._directory / f".{self._task.task_id.hex()}-{batch}.prepared"

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        handle = os.open(self._directory / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _move_key(old: Path, new: Path) -> None:
    """Earlier versions kept the key beside the hand-overs."""
    if old.exists() and not new.exists():
        new.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        body = read_secret(old, LEDGER_KEY, passphrase=None, token=None)
        write_secret(new, LEDGER_KEY, body, passphrase=None, token=None)
        old.unlink()
