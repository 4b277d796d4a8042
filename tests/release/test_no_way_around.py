"""No way around the gate: whatever order reports, releases, restarts and thefts come in."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from penrose_ray.actors.releaser import Releaser
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.packing import Slots, pack
from penrose_ray.errors import GateError
from penrose_ray.opening import open_sums
from penrose_ray.release.gate import least_passing
from penrose_ray.release.handover import build
from penrose_ray.release.published import read_members
from penrose_ray.snippet.journal import SnippetClass
from penrose_ray.task import sign
from penrose_ray.types import BatchId, ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Callable

    from release.conftest import Parts

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.release.handover import Handover
    from penrose_ray.task import Task

CLASSES = [ClassId(bytes([n]) * 16) for n in range(3)]
DAY_S = 86_400
FIRST = 20_000


class FakeShards:
    """All shards of a service as the release desk sees them: reports as ids, sums as real ciphertexts."""

    def __init__(self, task: Task, part_of: Callable[..., object]) -> None:
        self.task = task
        self.part_of = part_of
        self.reports: dict[tuple[BatchId, ClassId], list[ReportId]] = defaultdict(list)
        self.closed: set[BatchId] = set()

    def accept(self, report_id: ReportId, class_id: ClassId, batch: BatchId) -> bool:
        """A report joins its batch; one of a closed batch joins the next open one."""
        if any(report_id in members for members in self.reports.values()):
            return False
        while batch in self.closed:
            batch = BatchId(batch + 1)
        self.reports[batch, class_id].append(report_id)
        return True

    def batches(self) -> list[BatchId]:
        return sorted({batch for batch, _ in self.reports} - self.closed)

    def close_batch(self, batch: BatchId) -> None:
        self.closed.add(batch)

    def hold(self, *, held: bool) -> None:
        pass

    def sums(self, batch: BatchId) -> list[object]:
        return [
            self.part_of(class_id, batch, tuple(ids))
            for (of, class_id), ids in self.reports.items()
            if of == batch
        ]

    def classes(self) -> list[SnippetClass]:
        return [SnippetClass(each, "GPU", bytes(32)) for each in CLASSES]


class World(RuleBasedStateMachine):
    """A release desk that is asked for anything at any time, and dies now and then."""

    keys: DesignKeys
    task: Task
    part_of: Callable[..., object]

    @initialize(tokens=st.booleans())
    def begin(self, tokens: bool) -> None:  # noqa: FBT001 - hypothesis passes it by name
        self.home = TemporaryDirectory()
        changed = {"tokens_per_day": 1, "hostile_clients": 1} if tokens else {}
        self.task = msgspec.structs.replace(type(self).task, min_contributors=2, **changed)
        self.clock = ManualClock(FIRST * DAY_S + 1.0)
        self.shards = FakeShards(self.task, self.part_of)
        self.next_id = 0
        self.handed: dict[BatchId, bytes] = {}
        self.restart()

    @rule()
    def restart(self) -> None:
        signed = sign(self.task, self.keys.signing).encode()
        key_file = Path(self.home.name) / "keys" / "ledger.key"
        self.desk = Releaser(signed, Path(self.home.name), self.shards, key_file, self.clock)

    @rule(number=st.integers(0, 2), count=st.integers(1, 4), ago=st.integers(0, 1))
    def report(self, number: int, count: int, ago: int) -> None:
        batch = self.task.batch_of(self.clock.now_s() - ago * DAY_S)
        for _ in range(count):
            self.next_id += 1
            self.shards.accept(report_id(self.next_id), CLASSES[number], batch)

    @rule(back=st.integers(0, 3))
    def repeat(self, back: int) -> None:
        if self.next_id > back:
            assert not self.shards.accept(report_id(self.next_id - back), CLASSES[0], BatchId(FIRST))

    @rule(hours=st.integers(1, 60))
    def wait(self, hours: int) -> None:
        self.clock.advance(3600 * hours)

    @rule(batch=st.integers(FIRST - 1, FIRST + 6))
    def release(self, batch: int) -> None:
        wanted = BatchId(batch)
        try:
            handover = self.desk.release(wanted)
        except GateError:
            assert not self.desk.desk.due(wanted)
            assert wanted not in self.handed
            return
        except ValueError:  # there is nothing in it
            assert not self.shards.sums(wanted)
            return
        raw = handover.encode()
        assert self.handed.setdefault(wanted, raw) == raw, "the same request gets the same bytes"
        self._check(handover)

    def _check(self, handover: Handover) -> None:
        for entry in handover.entries:
            assert entry.weight >= least_passing(self.task)
        opening = open_sums(self.task, handover.batch, handover.entries, self.keys.paillier)
        assert [each.reports for each in opening.sums] == [each.weight for each in handover.entries]

    @invariant()
    def no_report_is_in_two_releases(self) -> None:
        if not hasattr(self, "home"):
            return
        stored = [read_members(path.read_bytes()) for path in Path(self.home.name).glob("*.members")]
        ids = [each for members in stored for entry in members for each in entry]
        assert len(ids) == len(set(ids))

    def teardown(self) -> None:
        if hasattr(self, "home"):
            self.home.cleanup()


def report_id(number: int) -> ReportId:
    return ReportId(hashlib.sha256(number.to_bytes(8, "big")).digest())


def test_whatever_happens_no_small_or_second_sum_leaves(
    task: Task, parts: Parts, design_keys: DesignKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penrose_ray.crypto.cipher.Encryptor", lambda *_: parts.encryptor)  # 0.3 s each
    monkeypatch.setattr(World, "keys", design_keys, raising=False)
    monkeypatch.setattr(World, "task", task, raising=False)
    monkeypatch.setattr(World, "part_of", staticmethod(parts.of_ids), raising=False)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        World,
        settings=settings(
            max_examples=12, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def sum_of(task: Task, parts: Parts, real: int, covers: int) -> bytes:
    """A ciphertext of `real` reports with all samples in bin 3 and `covers` of none."""
    empty = Slots(np.zeros(128, np.int64), task.samples_per_histogram, 0)
    blob = parts.encryptor.encrypt(pack(empty, task.profile()))
    accumulator = Accumulator(task.key(), task.profile(), capacity=10**6)
    if real:
        accumulator.merge(parts.one("a", real).blob, real)
    if covers:
        accumulator.add_many([blob] * covers)
    return accumulator.to_bytes()


@pytest.mark.parametrize("honest", [1, 2, 5])
def test_the_n_minus_1_attack_opens_nothing(
    task: Task, parts: Parts, design_keys: DesignKeys, honest: int
) -> None:
    """m hostile clients spend all tokens on a victim's class, k - 1 honest clients and fewer beside them.

    The gate counts their m c reports as if they were there in every sum, so what passes holds k honest ones
    more. Should the hostile ones collude with the service and pad the sum with cover reports, the sum passes,
    but the design server finds too few real reports and discards it.
    """
    attacked = msgspec.structs.replace(
        task, tokens_per_day=4, hostile_clients=3, reports_per_class=1, min_contributors=6, cover_rate=0.1
    )
    stuffing = attacked.hostile_clients * attacked.tokens_per_day
    alone = parts.of_blob(sum_of(task, parts, honest + stuffing, 0), honest + stuffing)
    handover = build(attacked, [alone], lambda _: "GPU", parts.encryptor)
    assert not handover.entries
    assert handover.withheld.reports == honest + stuffing

    padding = least_passing(attacked) - honest - stuffing
    padded = parts.of_blob(sum_of(task, parts, honest + stuffing, padding), least_passing(attacked))
    passed = build(attacked, [padded], lambda _: "GPU", parts.encryptor)
    opening = open_sums(attacked, passed.batch, passed.entries, design_keys.paillier)
    assert not opening.sums
    (dropped,) = opening.discarded
    assert dropped.error.message == f"The sum has {honest + stuffing} real reports, 18 are needed."


def test_what_passes_keeps_k_honest_clients_however_many_tokens_are_hostile(task: Task) -> None:
    """r k + m c real reports, at most m c of them hostile, at most r an honest client: k clients or more."""
    for k, c, m, r in [(50, 32, 10, 1), (200, 32, 10, 1), (50, 8, 3, 4)]:
        changed = msgspec.structs.replace(
            task, min_contributors=k, tokens_per_day=c, hostile_clients=m, reports_per_class=r
        )
        assert (changed.real_reports_needed() - m * c) / r >= k


def test_two_releases_cannot_be_subtracted(task: Task, parts: Parts, design_keys: DesignKeys) -> None:
    """A second release of the batch with one report more does not exist: the same bytes come back."""
    with TemporaryDirectory() as home:
        changed = msgspec.structs.replace(task, min_contributors=2)
        shards = FakeShards(changed, parts.of_ids)
        clock = ManualClock(FIRST * DAY_S + 1.0)
        signed = sign(changed, design_keys.signing).encode()
        desk = Releaser(signed, Path(home), shards, Path(home) / "ledger.key", clock)
        for number in range(3):
            shards.accept(report_id(number), CLASSES[0], BatchId(FIRST))
        first = desk.release(BatchId(FIRST))
        shards.accept(report_id(9), CLASSES[0], BatchId(FIRST))
        again = desk.release(BatchId(FIRST))
        assert again.encode() == first.encode()
        assert [each.weight for each in again.entries] == [3]
        assert shards.batches() == [FIRST + 1], "the late report joined the next batch"
        clock.advance(DAY_S)
        assert not desk.release(BatchId(FIRST + 1)).entries
