from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penrose_ray.clock import ManualClock
from penrose_ray.errors import (
    BudgetError,
    ClockError,
    GateError,
    KeyPermissionError,
    LedgerError,
    ReleaseFormatError,
)
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import make
from penrose_ray.release.ledger import Facts, Ledger, check_chain, ledger_key, read_lines
from penrose_ray.release.merkle import Tree
from penrose_ray.release.published import Prover
from penrose_ray.release.rules import policy_hash
from penrose_ray.types import BatchId, TaskId

if TYPE_CHECKING:
    from release.conftest import Parts

    from penrose_ray.release.handover import Made
    from penrose_ray.task import Task

TASK_ID = TaskId(b"t" * 32)
KEY = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
SIGNER = KEY.public_key().public_bytes_raw()
BATCH = BatchId(7)
MODEL = "Test GPU"


def open_ledger(path: Path, start_s: float = 1e9, key: Ed25519PrivateKey = KEY) -> Ledger:
    return Ledger(path, TASK_ID, key, ManualClock(start_s))


def test_entries_are_chained_signed_and_come_back(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = open_ledger(path)
    for batch in range(3):
        ledger.append(Facts(kind="release", batch=batch, reports=10 * batch))
    read = check_chain(read_lines(path.read_bytes()), signer=SIGNER)
    assert [entry.facts.kind for entry in read] == ["head", "release", "release", "release"]
    assert [entry.facts.reports for entry in read[1:]] == [0, 10, 20]
    hashes = [hashlib.sha256(entry.encode()).digest() for entry in read]
    assert [entry.previous for entry in read] == [bytes(32), *hashes[:-1]]
    assert open_ledger(path).entries == read
    assert ledger.released(BatchId(9)) is None
    line = ledger.released(BatchId(2))
    assert line is not None
    assert line.check(SIGNER) == read[-1]


def test_altered_removed_moved_and_foreign_lines_are_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = open_ledger(path)
    for batch in range(3):
        ledger.append(Facts(kind="release", batch=batch))
    lines = read_lines(path.read_bytes())
    altered = msgspec.structs.replace(lines[1], entry=lines[1].entry.replace(b"release", b"refused"))
    other = Ledger(tmp_path / "other", TASK_ID, Ed25519PrivateKey.generate(), ManualClock(1e9))
    foreign = other.append(Facts(kind="release", batch=1))
    for wrong in (
        [lines[0], altered, *lines[2:]],
        [lines[0], *lines[2:]],
        lines[1:],
        [lines[0], lines[2], lines[1], lines[3]],
        [*lines[:3], foreign],
        [*lines, lines[-1]],
    ):
        with pytest.raises(LedgerError):
            check_chain(wrong, signer=SIGNER)
    with pytest.raises(LedgerError):
        check_chain(lines, signer=b"\1" * 32)
    with pytest.raises(LedgerError):
        open_ledger(path, key=Ed25519PrivateKey.generate())
    path.write_bytes(path.read_bytes().replace(b'"entry"', b'"entri"'))
    with pytest.raises(LedgerError):
        open_ledger(path)


def test_a_line_cut_by_a_crash_is_taken_off(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    open_ledger(path).append(Facts(kind="release", batch=1))
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(whole.splitlines()[1][:50])
    assert len(open_ledger(path).entries) == 2
    assert path.read_bytes() == whole


def test_a_clock_that_moved_back_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    open_ledger(path, 1e9).append(Facts(kind="release", batch=1))
    before = path.read_bytes()
    with pytest.raises(ClockError, match="999999999"):
        open_ledger(path, 1e9 - 1).append(Facts(kind="release", batch=2))
    assert path.read_bytes() == before


def test_the_ledgers_key_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "ledger.key"
    first = ledger_key(path)
    assert ledger_key(path).private_bytes_raw() == first.private_bytes_raw()
    path.chmod(0o644)
    with pytest.raises(KeyPermissionError):
        ledger_key(path)


def test_a_key_beside_the_hand_overs_moves_to_its_new_place(tmp_path: Path, task: Task, made: Made) -> None:
    """Earlier versions kept it there; the ledger goes on under the same key."""
    old, new = tmp_path / "ledger.key", tmp_path / "keys" / "ledger.key"
    before = desk(tmp_path, task)
    before.release(BATCH, lambda: made)
    after = Desk(tmp_path, task, ManualClock(task.batch_s * (BATCH + 3.0)), new)
    assert after.signer == before.signer == check_chain(after.lines())[0].signer
    assert (old.exists(), new.stat().st_mode & 0o777) == (False, 0o600)


@pytest.fixture
def made(task: Task, parts: Parts) -> Made:
    two = [parts.one("a", 5), parts.one("a", 3), parts.one("b", 6), parts.one("rare", 2)]
    return make(task, two, lambda _: MODEL, parts.encryptor)


def desk(home: Path, task: Task, now_s: float | None = None) -> Desk:
    clock = ManualClock(task.batch_s * (BATCH + 3.0) if now_s is None else now_s)
    return Desk(home, task, clock, home / "ledger.key")


def test_a_release_is_in_the_ledger_with_all_that_can_be_checked(
    tmp_path: Path, task: Task, made: Made
) -> None:
    at = desk(tmp_path, task)
    handover = at.release(BATCH, lambda: made)
    entry = check_chain(read_lines(at.ledger_path.read_bytes()), signer=at.signer)[-1]
    assert entry.task_id == task.task_id
    assert entry.facts == Facts(
        kind="release",
        batch=7,
        sums=2,
        reports=14,
        withheld_sums=1,
        withheld_reports=2,
        id_checksum=bytes(
            a ^ b for a, b in zip(*(each.id_checksum for each in handover.entries), strict=True)
        ),
        ids_root=Tree(sorted(made.ids)).root,
        handover_hash=hashlib.sha256(at.releases.path(task.task_id, BATCH).read_bytes()).digest(),
        policy_hash=policy_hash(task),
    )


def test_asked_again_there_is_one_entry_and_the_same_bytes(tmp_path: Path, task: Task, made: Made) -> None:
    first = desk(tmp_path, task).release(BATCH, lambda: made)
    again = desk(tmp_path, task).release(BATCH, lambda: pytest.fail("made twice"))
    assert first.encode() == again.encode()
    assert len(read_lines(desk(tmp_path, task).ledger_path.read_bytes())) == 2


@pytest.mark.parametrize(
    ("step", "when", "result"),
    [
        ("replace", "before", "remade"),
        ("replace", "after", "remade"),
        ("append", "before", "remade"),
        ("append", "after", "prepared"),
        ("_publish", "before", "prepared"),
        ("_publish", "after", "prepared"),
    ],
)
def test_killed_at_any_step_the_release_goes_on_and_counts_once(
    tmp_path: Path, task: Task, made: Made, step: str, when: str, result: str
) -> None:
    """Once the entry was written, exactly the prepared bytes come out."""
    (tmp_path / "task").write_bytes(task.encode())
    (tmp_path / "made").write_bytes(msgspec.msgpack.encode([made.handover.encode(), made.members]))
    died = subprocess.run(
        [sys.executable, Path(__file__).with_name("crashing_desk.py"), tmp_path, step, when], check=False
    )
    assert died.returncode == 9
    at = desk(tmp_path, task)
    remade = msgspec.structs.replace(
        made.handover, withheld=msgspec.structs.replace(made.handover.withheld, sums=2)
    )
    handover = at.release(BATCH, lambda: type(made)(remade, made.members))
    assert handover == (made.handover if result == "prepared" else remade)
    entries = check_chain(read_lines(at.ledger_path.read_bytes()), signer=at.signer)
    assert [entry.facts.kind for entry in entries] == ["head", "release"]
    assert entries[1].facts.handover_hash == hashlib.sha256(handover.encode()).digest()


def test_a_lost_or_altered_prepared_handover_is_not_replaced(tmp_path: Path, task: Task, made: Made) -> None:
    at = desk(tmp_path, task)
    at.release(BATCH, lambda: made)
    at.releases.path(task.task_id, BATCH).unlink()
    with pytest.raises(LedgerError, match="gone or altered"):
        at.release(BATCH, lambda: made)


def test_ids_that_do_not_agree_with_the_sums_stop_the_release(tmp_path: Path, task: Task, made: Made) -> None:
    at = desk(tmp_path, task)
    for ids in (made.ids[1:], (made.ids[1], *made.ids[1:]), (made.ids[0][::-1], *made.ids[1:])):
        with pytest.raises(LedgerError, match="do not agree"):
            at.release(BATCH, lambda ids=ids: type(made)(made.handover, (ids,)))
    assert at.releases.find(task.task_id, BATCH) is None
    assert len(read_lines(at.ledger_path.read_bytes())) == 1


def test_a_batch_with_tokens_waits_for_late_reports(tmp_path: Path, task: Task, made: Made) -> None:
    """Released early, its late reports would join the next batch, which then saw tokens of two days."""
    with_tokens = msgspec.structs.replace(task, tokens_per_day=1)
    end_s = (BATCH + 1) * task.batch_s
    early = desk(tmp_path, with_tokens, end_s + 36 * 3600 - 1.0)
    assert not early.due(BATCH)
    with pytest.raises(GateError, match="may still arrive"):
        early.release(BATCH, lambda: made)
    assert desk(tmp_path, with_tokens, end_s + 36 * 3600.0).due(BATCH)


def test_a_client_can_check_that_its_report_was_released(tmp_path: Path, task: Task, made: Made) -> None:
    at = desk(tmp_path, task)
    at.release(BATCH, lambda: made)
    line = read_lines(at.ledger_path.read_bytes())[-1]
    prover = Prover(line, at.members_path(BATCH).read_bytes())
    for report_id in made.ids:
        inclusion = prover.prove(report_id)
        inclusion.check(report_id, signer=at.signer)
        with pytest.raises(LedgerError):
            inclusion.check(made.ids[0] if report_id != made.ids[0] else made.ids[1], signer=at.signer)
        with pytest.raises(LedgerError):
            inclusion.check(report_id, signer=SIGNER)
    with pytest.raises(LedgerError, match="in no release"):
        prover.prove(type(made.ids[0])(b"x" * 32))


def test_a_spent_budget_is_refused_and_the_refusal_booked(tmp_path: Path, task: Task) -> None:
    noisy = msgspec.structs.replace(
        task, tokens_per_day=1, noise_sigma=100.0, noise_epsilon=1.0, min_contributors=50
    )
    at = desk(tmp_path, noisy, noisy.batch_s * 11.0)
    for _ in range(2):  # asked again, it says so again and books no more
        with pytest.raises(BudgetError, match=r"its budget is 1 at delta = 1e-05"):
            at.release(BATCH, lambda: pytest.fail("nothing is made when the budget is spent"))
    entries = check_chain(read_lines(at.ledger_path.read_bytes()), signer=at.signer)
    assert [(entry.facts.kind, entry.facts.reason) for entry in entries[1:]] == [("refused", "budget-spent")]
    assert at.releases.find(noisy.task_id, BATCH) is None


def test_racing_requests_get_the_same_bytes(tmp_path: Path, task: Task, parts: Parts) -> None:
    results, calls = list[bytes](), list[int]()

    def fresh() -> Made:
        calls.append(1)
        return make(task, [parts.one("a", 5)], lambda _: MODEL, parts.encryptor)

    def ask() -> None:
        results.append(desk(tmp_path, task).release(BATCH, fresh).encode())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert len(set(results)) == 1
    assert len(calls) == 1


def test_a_damaged_stored_handover_is_named(tmp_path: Path, task: Task, made: Made) -> None:
    at = desk(tmp_path, task)
    at.release(BATCH, lambda: made)
    path = at.releases.path(task.task_id, BATCH)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ReleaseFormatError):
        at.release(BATCH, lambda: made)


def test_a_handover_of_another_batch_is_not_stored(tmp_path: Path, task: Task, made: Made) -> None:
    at = desk(tmp_path, task)
    with pytest.raises(ValueError, match="batch 5"):
        at.release(BatchId(5), lambda: made)
    assert at.releases.find(task.task_id, BatchId(5)) is None
