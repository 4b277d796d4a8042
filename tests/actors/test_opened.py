"""Hand-overs on the design server's own machine: what does not agree is refused, nothing is spent twice."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow.parquet as pq
import pytest
from release.conftest import SAMPLES, Parts

from penrose_ray.actors.opened import Opener
from penrose_ray.clock import ManualClock
from penrose_ray.errors import BudgetError, HandoverError, LedgerError, ReleaseFormatError, WrongKeyError
from penrose_ray.release.budget import Budget
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import Handover, decode, make
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

BATCH = BatchId(7)


class World(NamedTuple):
    """A release desk in `service`, a copy of its directory in `copy`, a design server in `own`."""

    home: Path
    task: Task
    desk: Desk
    parts: Parts
    opener: Opener

    @property
    def copy(self) -> Path:
        return self.home / "copy"

    def release(self, batch: int, *sizes: int) -> Handover:
        """A batch whose classes have so many reports, copied over."""
        many = [self.parts.one(f"class {n} of {batch}", size, batch=batch) for n, size in enumerate(sizes)]
        made = self.desk.release(
            BatchId(batch), lambda: make(self.task, many, lambda _: "GPU", self.parts.encryptor)
        )
        shutil.copytree(self.home / "service", self.copy, dirs_exist_ok=True)
        return made

    def file(self, batch: int = BATCH) -> Path:
        return self.copy / f"{self.task.task_id.hex()}-{batch}.handover"

    def alter(self, change: Callable[[Handover], Handover]) -> None:
        """The copy of a hand-over, changed and whole again."""
        self.file().write_bytes(change(decode(self.file().read_bytes())).encode())


@contextlib.contextmanager
def world(home: Path, keys: DesignKeys, task: Task) -> Iterator[World]:
    desk = Desk(home / "service", task, ManualClock(task.batch_s * 20.0), home / "ledger.key")
    opener = Opener(task, keys.paillier, desk.signer, home / "own")
    yield World(home, task, desk, Parts(keys, task), opener)
    opener.close()


@pytest.fixture
def apart(tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys) -> Iterator[World]:
    with world(tmp_path, design_keys, make_task(min_contributors=5)) as made:
        yield made


def counts(path: Path) -> list[tuple[int, int]]:
    """Of each row its batch and reports; all samples are where they were put."""
    rows = pq.read_table(path).to_pylist()
    assert all(row["bins"][3] == row["reports"] * SAMPLES for row in rows)
    return sorted((row["batch"], row["reports"]) for row in rows)


def test_a_directory_s_new_hand_overs_are_opened_and_nothing_of_it_is_written(apart: World) -> None:
    apart.release(7, 5, 6, 2)
    before = sorted(apart.copy.iterdir())
    (first,) = apart.opener.open(apart.copy)
    assert counts(first.path) == [(7, 5), (7, 6)]
    apart.release(8, 9)
    (second,) = apart.opener.open(apart.copy)
    assert counts(second.path) == [(8, 9)]
    assert apart.opener.open(apart.copy) == []
    assert {each.parent for each in (first.path, second.path)} == {apart.home / "own"}
    assert set(before) <= set(apart.copy.iterdir())
    assert not list(apart.copy.glob("*.parquet"))


def test_a_hand_over_that_was_opened_is_not_opened_again(apart: World) -> None:
    apart.release(7, 5)
    (opened,) = apart.opener.open(apart.file())
    with pytest.raises(HandoverError, match="Batch 7 was opened before"):
        apart.opener.open(apart.file())
    opened.path.unlink()  # as after a crash between note and file
    (again,) = apart.opener.open(apart.file())
    assert again == opened


def lighter(handover: Handover) -> Handover:
    entry = msgspec.structs.replace(handover.entries[0], weight=4)
    return msgspec.structs.replace(handover, entries=(entry, *handover.entries[1:]))


def other_sum(handover: Handover) -> Handover:
    first, second = handover.entries
    swapped = (msgspec.structs.replace(first, blob=second.blob), second)
    return msgspec.structs.replace(handover, entries=swapped)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lighter, "k = 5 honest contributors need 5"),
        (other_sum, "not the one in the ledger"),
        (lambda handover: msgspec.structs.replace(handover, spent_epsilon=0.5), "not the one in the ledger"),
    ],
)
def test_an_altered_hand_over_is_refused_before_and_after_the_right_one(
    apart: World, change: Callable[[Handover], Handover], reason: str
) -> None:
    apart.release(7, 5, 5)
    right = apart.file().read_bytes()
    apart.alter(change)
    for place in apart.file(), apart.copy:
        with pytest.raises(HandoverError, match=reason):
            apart.opener.open(place)
    assert not list((apart.home / "own").glob("*.parquet"))
    apart.file().write_bytes(right)
    assert len(apart.opener.open(apart.copy)) == 1
    apart.alter(change)
    for place in apart.file(), apart.copy:
        with pytest.raises(HandoverError, match="decrypted before with other content"):
            apart.opener.open(place)


def test_a_hand_over_of_another_task_or_key_is_refused(
    apart: World, make_task: Callable[..., Task], design_keys: DesignKeys, tmp_path: Path
) -> None:
    apart.release(7, 5)
    with world(tmp_path / "other", design_keys, make_task(name="another", min_contributors=5)) as other:
        other.release(7, 5)
        with pytest.raises(ReleaseFormatError, match="is of task"):
            apart.opener.open(other.file())
        with pytest.raises(LedgerError, match="There is no ledger"):
            apart.opener.open(other.copy)
        with pytest.raises(HandoverError, match="not signed by the pinned"):
            Opener(apart.task, design_keys.paillier, other.desk.signer, tmp_path / "third").open(apart.copy)


def test_what_a_copy_lacks_is_said_or_left_for_the_next_time(apart: World) -> None:
    apart.release(7, 5)
    members = apart.desk.members_path(BATCH).name
    (apart.copy / members).unlink()
    with pytest.raises(ReleaseFormatError, match="ids of this release cannot be read"):
        apart.opener.open(apart.copy)
    apart.file().unlink()
    assert apart.opener.open(apart.copy) == []
    with pytest.raises(ReleaseFormatError, match="cannot be read"):
        apart.opener.open(apart.file())


def test_noise_is_paid_for_once_and_never_above_the_budget(
    tmp_path: Path, make_task: Callable[..., Task], design_keys: DesignKeys
) -> None:
    pytest.importorskip("dp_accounting")
    noise = {"noise_sigma": 400.0, "noise_epsilon": 6.0, "noise_delta": 1e-5}
    gate = {"min_contributors": 5, "tokens_per_day": 1, "hostile_clients": 0, "cover_rate": 0.0}
    noisy = make_task(**gate, **noise)
    with world(tmp_path, design_keys, noisy) as apart:
        apart.release(7, 5)
        (opened,) = apart.opener.open(apart.copy)
        with contextlib.closing(Budget(tmp_path / "own" / "budget.sqlite")) as budget:
            once = budget.spent(noisy)
            assert once > 0
            (row,) = pq.read_table(opened.path).to_pylist()
            assert row["spent_epsilon"] == once, "both parties count alike"
            opened.path.unlink()
            apart.opener.open(apart.copy)
            assert budget.spent(noisy) == once
            for batch in range(100, 200):  # what other batches have spent
                with contextlib.suppress(BudgetError):
                    budget.spend(noisy, BatchId(batch))
        apart.release(8, 5)
        with pytest.raises(BudgetError):
            apart.opener.open(apart.copy)


def test_a_key_that_is_not_the_task_s_opens_nothing(apart: World) -> None:
    class Stranger:
        fingerprint = "another"

        @staticmethod
        def decrypt_many(*_: object) -> list[tuple[int, ...]]:
            raise AssertionError("nothing is decrypted")

    apart.release(7, 5)
    opener = Opener(apart.task, Stranger(), apart.desk.signer, apart.home / "stranger")
    with pytest.raises(WrongKeyError):
        opener.open(apart.copy)
