"""Reports as columns are judged, kept and moved like reports that come one by one."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penrose_ray.aggregate.arrival import Arrival, Outcome, SumKey
from penrose_ray.aggregate.block import OUTCOMES, Block, decode
from penrose_ray.aggregate.core import Core
from penrose_ray.aggregate.moving import Placement
from penrose_ray.aggregate.routing import bucket_of
from penrose_ray.aggregate.rows import DamagedRowError
from penrose_ray.aggregate.salvage import salvage
from penrose_ray.aggregate.service import ShardService
from penrose_ray.aggregate.sums import id_checksum
from penrose_ray.aggregate.thinning import kept
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.ciphertext import join
from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.packing import Slots, pack, unpack
from penrose_ray.crypto.plain import PlainEncryptor, plaintexts_of
from penrose_ray.errors import JournalError, JournalFullError
from penrose_ray.telemetry import JOURNAL_ERRORS, Distribution, snapshot
from penrose_ray.types import BatchId, BucketId, ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.task import Task
    from tests.aggregate.conftest import Reports

NOW_S = 1_750_000_000.0
HOUR = int(NOW_S // 3600)
SAMPLES = 100


@pytest.fixture(scope="module")
def plain(task: Task) -> Task:
    return msgspec.structs.replace(task, slot_profile="plain3072")


@pytest.fixture
def shard(tmp_path: Path, plain: Task) -> Iterator[ShardService]:
    with ShardService(tmp_path / "shard.journal", plain, ManualClock(NOW_S), validate_states=True) as made:
        yield made


def report_id(number: int) -> ReportId:
    return ReportId(hashlib.sha256(f"report {number}".encode()).digest())


def one(task: Task, number: int, *, name: str = "a", counter_set: int = 0, hour: int = HOUR) -> Arrival:
    """Report `number`, all samples in that bin."""
    bins = np.zeros(128, np.int64)
    bins[number % 128] = SAMPLES
    profile = task.profile()
    signature = hashlib.sha256(name.encode()).digest() * 2
    return Arrival(
        report_id(number),
        ClassId(signature[:16]),
        hashlib.sha256(signature).digest(),
        counter_set,
        hour,
        signature,
        PlainEncryptor(profile).encrypt(pack(Slots(bins, 0, 1), profile)),
    )


def some(task: Task, numbers: range, *, name: str = "a") -> list[Arrival]:
    return [one(task, number, name=name) for number in numbers]


def hits(shard: ShardService) -> dict[tuple[bytes, int, int], list[int]]:
    """Which bins each sum of each batch has hit how often, its weight last."""
    profile = shard._core.task.profile()
    found = {}
    for batch in [*shard.batches(), *shard.closed_batches()]:
        for total in shard.sums(batch.batch):
            slots = unpack(plaintexts_of(total.blob, profile), profile)
            assert len(total.ids) == total.weight
            found[total.key] = [*(slots.bins // SAMPLES).tolist(), total.weight]
    return found


Spec = st.tuples(
    st.integers(0, 6),  # report
    st.sampled_from("abc"),
    st.integers(0, 2),  # counter set, 2 of which there are
)


@dataclass(frozen=True)
class Circumstances:
    """State of a shard before it is offered reports."""

    before: list[tuple[int, str, int]]
    hour: int
    owned: range | None
    capacity: int
    is_pressed: bool
    is_thinned: bool
    is_closed: bool


AnyCircumstances = st.builds(
    Circumstances,
    before=st.lists(Spec, max_size=5),
    hour=st.sampled_from([HOUR - 40, HOUR - 30, HOUR, HOUR + 3]),
    owned=st.sampled_from([None, range(128), range(256)]),
    capacity=st.sampled_from([2, 1000]),
    is_pressed=st.booleans(),
    is_thinned=st.booleans(),
    is_closed=st.booleans(),
)


def bring_about(case: Circumstances, shard: ShardService, task: Task) -> None:
    if case.owned is not None:
        shard.moves.settle(Placement(1, frozenset(map(BucketId, case.owned))))
    shard._core.shard._capacity = case.capacity
    for number, name, counter_set in case.before:
        shard.accept([one(task, number, name=name, counter_set=counter_set, hour=case.hour)])
    batch = task.batch_of(case.hour * 3600)
    if case.is_thinned:
        shard.regroup.thin({SumKey(one(task, 0).class_id, 0, batch): 1})
    if case.is_closed:
        shard.close_batch(batch)
    if case.is_pressed:
        shard.upkeep.press("no room")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(case=AnyCircumstances, specs=st.lists(Spec, min_size=1, max_size=14))
def test_a_block_is_judged_as_its_reports_would_be_one_by_one(
    tmp_path_factory: pytest.TempPathFactory,
    plain: Task,
    case: Circumstances,
    specs: list[tuple[int, str, int]],
) -> None:
    home = tmp_path_factory.mktemp("twins")
    arrivals = [
        one(plain, number, name=name, counter_set=counter_set, hour=case.hour)
        for number, name, counter_set in specs
    ]
    with (
        ShardService(home / "rows", plain, ManualClock(NOW_S), validate_states=True) as first,
        ShardService(home / "block", plain, ManualClock(NOW_S), validate_states=True) as second,
    ):
        for shard in (first, second):
            bring_about(case, shard, plain)
        wanted = [each.outcome for each in first.accept(arrivals)]
        answer = second.accept_block(Block.of(arrivals))
        assert [OUTCOMES[code] for code in answer.codes.tolist()] == wanted
        assert answer.counts() == Counter(wanted)
        assert hits(first) == hits(second)


def test_blobs_of_the_wrong_width_are_refused(shard: ShardService, plain: Task) -> None:
    block = Block.of(some(plain, range(4)))
    narrow = replace(block, blobs=block.blobs[:, :-1])
    answer = shard.accept_block(narrow)
    assert answer.counts() == {Outcome.REFUSED_CIPHERTEXT: 4}
    assert "bytes" in answer.details[Outcome.REFUSED_CIPHERTEXT]
    assert shard.counts().reports == 0


def test_sealed_reports_may_come_as_a_block(tmp_path: Path, task: Task, reports: Reports) -> None:
    with ShardService(tmp_path / "sealed", task, ManualClock(NOW_S)) as shard:
        answer = shard.accept_block(Block.of(reports.some(range(5))))
        assert answer.counts() == {Outcome.ACCEPTED: 5}
        (batch,) = shard.batches()
        assert reports.hits(shard.sums(batch.batch)) == Counter(range(5))


@pytest.mark.parametrize("switch", ["0", "1"])
def test_a_ciphertext_outside_the_group_is_refused_alone(
    tmp_path: Path, task: Task, reports: Reports, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    monkeypatch.setenv(native.SWITCH, switch)
    arrivals = reports.some(range(20))
    outside = join([task.key().n] * task.profile().ciphertexts, task.profile())
    arrivals[7] = replace(arrivals[7], blob=outside)
    with ShardService(tmp_path / "sealed", task, ManualClock(NOW_S)) as shard:
        answer = shard.accept_block(Block.of(arrivals))
        assert answer.rows(Outcome.REFUSED_CIPHERTEXT).tolist() == [7]
        again = shard.accept_block(Block.of([*arrivals[:3], *reports.some(range(20, 40))]))
        assert again.counts() == {Outcome.KNOWN: 3, Outcome.ACCEPTED: 20}
        (batch,) = shard.batches()
        assert reports.hits(shard.sums(batch.batch)) == Counter([*range(7), *range(8, 40)])


def test_an_opened_journal_holds_what_was_acknowledged(tmp_path: Path, plain: Task) -> None:
    path = tmp_path / "shard.journal"
    core = Core(
        path, plain, ManualClock(NOW_S)
    )  # no orderly end: sums are added up again from rows and blocks
    core.journal.close()
    shard = ShardService(path, plain, ManualClock(NOW_S))
    shard.accept(some(plain, range(3)))
    shard.accept_block(Block.of(some(plain, range(3, 9))))
    shard.accept(some(plain, range(9, 11), name="b"))
    wanted = hits(shard)
    shard._core.journal.close()
    with ShardService(path, plain, ManualClock(NOW_S)) as again:
        assert hits(again) == wanted
        answer = again.accept_block(Block.of(some(plain, range(2, 12))))
        assert answer.counts() == {Outcome.KNOWN: 9, Outcome.ACCEPTED: 1}


def test_arrival_order_is_kept_across_rows_and_blocks(shard: ShardService, plain: Task) -> None:
    for start in (0, 3, 6, 9):
        arrivals = some(plain, range(start, start + 3))
        if start % 2:
            shard.accept_block(Block.of(arrivals))
        else:
            shard.accept(arrivals)
    found = list(shard._core.journal.numbered())
    assert [number for number, _ in found] == list(range(1, 13))
    assert [row.arrival for _, row in found] == some(plain, range(12))
    assert [row.arrival for _, row in shard._core.journal.numbered(after=4)] == some(plain, range(4, 12))


def test_buckets_of_a_block_move_to_another_shard(tmp_path: Path, plain: Task) -> None:
    clock = ManualClock(NOW_S)
    with (
        ShardService(tmp_path / "old", plain, clock, placed=True) as old,
        ShardService(tmp_path / "new", plain, clock, placed=True) as new,
    ):
        everything = frozenset(map(BucketId, range(256)))
        half = frozenset(map(BucketId, range(128)))
        old.moves.settle(Placement(1, everything))
        old.accept_block(Block.of(some(plain, range(40))))
        wanted = hits(old)
        old.moves.seal(half, epoch=2)
        after: int | None = 0
        while after is not None:
            page = old.moves.export(half, epoch=2, after=after, most=7)
            new.moves.receive(page)
            after = page.following
        new.moves.settle(Placement(3, half))
        old.moves.settle(Placement(3, everything - half))
        (first,), (second,) = hits(old).values(), hits(new).values()
        assert [a + b for a, b in zip(first, second, strict=True)] == next(iter(wanted.values()))
        assert first[-1]
        assert second[-1]
        assert {each.bucket < 128 for each in new._core.journal.rows()} == {True}
        assert {each.bucket < 128 for each in old._core.journal.rows()} == {False}


def test_several_sums_are_thinned_in_one_pass_over_their_own_blocks(shard: ShardService, plain: Task) -> None:
    for place, name in enumerate("abcdef"):
        shard.accept_block(Block.of(some(plain, range(20 * place, 20 * place + 20), name=name)))
    before = hits(shard)
    keys = [SumKey(*key) for key in before][:2]
    statements: list[str] = []
    shard._core.journal._db.set_trace_callback(statements.append)
    shard.regroup.thin(dict.fromkeys(keys, 1))
    shard._core.journal._db.set_trace_callback(None)
    assert sum("FROM report_blocks WHERE first =" in each for each in statements) == len(keys)
    after = hits(shard)
    for key in keys:
        assert 0 < after[key][-1] < before[key][-1]
    assert {key: after[key] for key in before if key not in keys} == {
        key: before[key] for key in before if key not in keys
    }


def test_sub_batches_of_all_sums_are_made_in_one_pass(tmp_path: Path, plain: Task) -> None:
    task = msgspec.structs.replace(plain, sub_batches=3)
    with ShardService(tmp_path / "shard", task, ManualClock(NOW_S)) as shard:
        arrivals = [one(task, number, name="abcd"[number % 4]) for number in range(80)]
        shard.accept_block(Block.of(arrivals[:50]))
        shard.accept(arrivals[50:])
        (batch,) = shard.batches()
        statements: list[str] = []
        shard._core.journal._db.set_trace_callback(statements.append)
        parts = shard.sums(batch.batch)
        shard._core.journal._db.set_trace_callback(None)
    assert sum("FROM report_blocks WHERE first =" in each for each in statements) == 1
    assert [part.key for part in parts] == sorted(part.key for part in parts)
    found: dict[tuple[bytes, int], list[int]] = {}
    for part in parts:
        (number,) = {bucket_of(each) % 3 for each in part.ids}
        slots = unpack(plaintexts_of(part.blob, task.profile()), task.profile())
        found[part.class_id, number] = np.flatnonzero(slots.bins).tolist()
        assert part.weight == len(part.ids) == slots.bins.sum() // SAMPLES
        assert part.id_checksum == id_checksum(part.ids).to_bytes(32, "big")
    expected: dict[tuple[bytes, int], list[int]] = {}
    for number, each in enumerate(arrivals):
        expected.setdefault((each.class_id, bucket_of(each.report_id) % 3), []).append(number)
    assert found == expected


def test_thinning_and_splitting_leave_reports_that_are_coming_in_out_of_the_sums(
    tmp_path: Path, plain: Task
) -> None:
    clock = ManualClock(NOW_S)
    with (
        ShardService(tmp_path / "old", plain, clock, placed=True) as old,
        ShardService(tmp_path / "new", plain, clock, placed=True) as new,
    ):
        everything = frozenset(map(BucketId, range(256)))
        half = frozenset(map(BucketId, range(128)))
        old.moves.settle(Placement(1, half))
        new.moves.settle(Placement(1, everything - half))
        arrivals = some(plain, range(60))
        for each in arrivals:
            (old if bucket_of(each.report_id) < 128 else new).accept([each])
        old.moves.seal(half, epoch=2)
        new.moves.receive(old.moves.export(half, epoch=2))
        (key,) = map(SumKey._make, hits(new))
        new.regroup.thin({key: 1})
        new.regroup.split(key.class_id, {arrivals[0].snippet_hash: ClassId(b"o" * 16)})
        new.moves.settle(Placement(3, everything))
        wanted = [each.report_id for each in arrivals if kept(each.report_id, 1)]
        (found,) = hits(new).values()
        assert found == [*(int(report_id(at) in wanted) for at in range(128)), len(wanted)]


def asked(path: Path) -> Counter[str]:
    """What the operator's query says while the shard runs."""
    with closing(sqlite3.connect(path)) as database:
        return Counter(
            dict(
                database.execute(
                    "SELECT snippet_hash, COUNT(*) FROM partial_histograms GROUP BY snippet_hash"
                ).fetchall()
            )
        )


def test_the_operators_query_counts_single_reports_and_those_in_blocks(
    tmp_path: Path, shard: ShardService, plain: Task
) -> None:
    path = tmp_path / "shard.journal"
    a, b = (one(plain, 0, name=name).snippet_hash.hex() for name in "ab")
    shard.accept(some(plain, range(3)))
    assert asked(path) == {a: 3}
    mixed = [one(plain, 10 + n, name="ab"[n % 2], counter_set=n % 3 % 2) for n in range(9)]
    shard.accept_block(Block.of([*mixed, *some(plain, range(3))]))  # the last three are known
    assert asked(path) == {a: 3 + 5, b: 4}
    with closing(sqlite3.connect(path)) as database:
        sets = Counter(database.execute("SELECT snippet_hash, counter_set FROM partial_histograms"))
        (when,) = set(database.execute("SELECT batch, created_hour FROM partial_histograms"))
    single = Counter({(a, 0): 3})
    assert sets == single + Counter((each.snippet_hash.hex(), each.counter_set) for each in mixed)
    assert when == (plain.batch_of(NOW_S), HOUR)

    shard.regroup.split(one(plain, 0).class_id, {one(plain, 0).snippet_hash: ClassId(b"o" * 16)})
    assert asked(path) == {a: 8, b: 4}, "a block that is written anew"
    with shard._core.changing() as change:
        change.delete_batch(plain.batch_of(NOW_S), 6)
    assert asked(path).total() == 6


def test_a_block_s_columns_that_are_not_what_was_written_are_named(tmp_path: Path, plain: Task) -> None:
    path = tmp_path / "shard.journal"
    with ShardService(path, plain, ManualClock(NOW_S)) as shard:
        shard.accept_block(Block.of(some(plain, range(3))))
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE report_blocks SET counter_sets = replace(counter_sets, '0', '1')")
        database.execute("UPDATE about SET value = 1 WHERE name = 'in_use'")
        database.commit()
    with pytest.raises(JournalError, match="columns of the block of reports at 1"):
        ShardService(path, plain, ManualClock(NOW_S))


def test_a_block_counts_as_a_commit(
    shard: ShardService, plain: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen() -> tuple[int, float, int]:
        found = snapshot()
        reports, seconds = (
            found.get(name, {}).get((), Distribution((), 0.0))
            for name in ("penrose_commit_reports", "penrose_commit_seconds")
        )
        assert isinstance(reports, Distribution)
        assert isinstance(seconds, Distribution)
        return sum(reports.counts), reports.total, sum(seconds.counts)

    before = seen()
    shard.accept_block(Block.of(some(plain, range(7))))
    shard.accept_block(Block.of(some(plain, range(7))))
    assert [now - then for now, then in zip(seen(), before, strict=True)] == [1, 7, 1], (
        "nothing new, no commit"
    )

    def full(*_: object) -> None:
        raise JournalFullError("full.", remedy="Wait.")

    errors = JOURNAL_ERRORS.value()
    monkeypatch.setattr(shard._core.journal, "change", full)
    with pytest.raises(JournalFullError):
        shard.accept_block(Block.of(some(plain, range(7, 9))))
    assert (JOURNAL_ERRORS.value() - errors, seen()[1] - before[1]) == (1, 7)


def test_a_class_in_a_block_is_split_and_thinned(shard: ShardService, plain: Task) -> None:
    shard.accept_block(Block.of([*some(plain, range(20)), *some(plain, range(20, 40), name="b")]))
    ((batch,), a) = (shard.batches(), one(plain, 0))
    other = ClassId(b"o" * 16)
    shard.regroup.split(a.class_id, {a.snippet_hash: other})
    assert {key[0] for key in hits(shard)} == {other, one(plain, 0, name="b").class_id}
    shard.regroup.thin({SumKey(other, 0, batch.batch): 1})
    (weight,) = [found[-1] for key, found in hits(shard).items() if key[0] == other]
    assert 0 < weight < 20


def test_old_blocks_are_deleted(tmp_path: Path, plain: Task) -> None:
    clock = ManualClock(NOW_S)
    with ShardService(tmp_path / "shard", plain, clock) as shard:
        shard.accept_block(Block.of(some(plain, range(8))))
        (batch,) = shard.batches()
        shard.close_batch(batch.batch)
        shard.upkeep.note_handed_over([batch.batch])
        clock.advance(48 * 3600)
        later = one(plain, 50, hour=HOUR + 48)
        shard.accept_block(Block.of([later]))
        assert shard.upkeep.purge() == 1
        assert [row.arrival for row in shard._core.journal.rows()] == [later]
        assert not shard.known([report_id(0)])


def test_a_salvaged_journal_has_its_blocks(tmp_path: Path, plain: Task) -> None:
    path = tmp_path / "shard.journal"
    with ShardService(path, plain, ManualClock(NOW_S)) as shard:
        shard.accept(some(plain, range(2)))
        shard.accept_block(Block.of(some(plain, range(2, 9))))
        wanted = hits(shard)
    assert salvage(path).kept == 9
    with ShardService(path, plain, ManualClock(NOW_S)) as shard:
        assert hits(shard) == wanted


def test_a_damaged_block_is_named(shard: ShardService, plain: Task) -> None:
    shard.accept_block(Block.of(some(plain, range(3))))
    shard._core.journal._db.execute("UPDATE report_blocks SET crc = crc + 1")
    with pytest.raises(JournalError, match="block of reports at 1"):
        list(shard._core.journal.rows())


def test_a_record_gives_the_block_back(plain: Task) -> None:
    arrivals = [*some(plain, range(3)), one(plain, 3, name="b", counter_set=1)]
    block, batch = decode(Block.of(arrivals).part(np.array([0, 3])).encode(BatchId(7)))
    assert (batch, block.arrivals()) == (7, [arrivals[0], arrivals[3]])
    assert len(block.signature) == 2
    with pytest.raises(DamagedRowError):
        decode(b"\x93 none")
