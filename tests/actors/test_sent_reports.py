"""At most r reports of a client a class, counter set and batch: over restarts, kills, GPUs and clocks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from e2e import fleet

from penrose_ray.actors.local_classes import LocalClasses
from penrose_ray.actors.sent_reports import Sent, SentReports
from penrose_ray.clock import ManualClock
from penrose_ray.errors import SpoolError
from penrose_ray.snippet.minhash import Signature
from penrose_ray.snippet.scheme import scheme
from penrose_ray.task import verify
from penrose_ray.transport.direct import DirectUploader
from penrose_ray.types import BatchId
from penrose_ray.wire import RECORD_BYTES, decode

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

KEY = bytes(range(32))
DAY_S = 86_400.0
FEW = {"cover_rate": 0.0, "sampling_interval": 4, "samples_per_histogram": 100}


@pytest.fixture
def home(tmp_path: Path, design_keys: DesignKeys) -> Path:
    """A trace of two programs and a task with r = 1."""
    fleet.write_trace(tmp_path / "trace.json.gz", seed=3, rounds=2)
    counters = fleet.counters_of(tmp_path / "trace.json.gz")
    signed = fleet.signed_task(design_keys, counters, reports_per_class=1, **FEW)
    (tmp_path / "kineto.task").write_bytes(signed.encode())
    return tmp_path


def live(home: Path, when: str) -> int:
    """One life of a client as a process of its own; returns how it ended."""
    program = Path(__file__).parent / "sending_client.py"
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, program, home, when]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, check=False, env=environment, timeout=300).returncode


def sent_by(home: Path) -> Counter[tuple[bytes, int]]:
    """Reports by (signature, counter set)."""
    raw = (home / "records").read_bytes()
    reports = [decode(raw[at : at + RECORD_BYTES]) for at in range(0, len(raw), RECORD_BYTES)]
    return Counter((each.signature, each.counter_set) for each in reports)


def test_three_lives_in_one_batch_send_what_one_life_may(home: Path) -> None:
    assert [live(home, "never") for _ in range(3)] == [0, 0, 0]
    counts = sent_by(home)
    assert len(counts) == 2, "both programs"
    assert set(counts.values()) == {1}


@pytest.mark.parametrize(("when", "classes"), [("before", 2), ("after", 1)])
def test_killed_around_the_note_a_report_may_be_lost_and_is_not_sent_twice(
    home: Path, when: str, classes: int
) -> None:
    assert live(home, when) == -9
    assert not (home / "records").read_bytes()
    assert [live(home, "never") for _ in range(2)] == [0, 0]
    counts = sent_by(home)
    assert len(counts) == classes, "what was noted and not sent is lost"
    assert set(counts.values()) == {1}


def test_equal_gpus_of_one_host_are_one_contributor(tmp_path: Path, design_keys: DesignKeys) -> None:
    trace = tmp_path / "trace.json.gz"
    fleet.write_trace(trace, seed=3, rounds=1, gpus=8)
    signed = fleet.signed_task(design_keys, fleet.counters_of(trace), reports_per_class=1, **FEW)
    records: list[bytes] = []
    client, _ = fleet.replay_client(
        trace,
        verify(signed.encode()),
        DirectUploader(records.append),
        fleet.Truth(),
        clock=ManualClock(),
        seed=1,
    )
    while client.step():
        pass
    client.finish()
    counts = Counter(decode(record).signature for record in records)
    assert (len(counts), set(counts.values()), client.counts.classes) == (2, {1}, 2)
    assert client.counts.snippets == 2 * 2 * 8, "all GPUs were watched"


@pytest.fixture
def task(make_task: Callable[..., Task]) -> Task:
    return make_task(reports_per_class=2)


def signature_of(task: Task, seed: int) -> Signature:
    made = scheme(task.signature_scheme)
    return Signature(made.id, np.random.default_rng(seed).integers(1 << 31, size=made.size, dtype=np.uint32))


def test_a_note_outlives_its_process_and_names_nothing_in_the_clear(task: Task, tmp_path: Path) -> None:
    path, one = tmp_path / "sent.sqlite", Sent(BatchId(7), "Some GPU", 1, b"signature" * 8)
    first = SentReports(task, path, KEY)
    first.note(one)
    stored = path.read_bytes() + path.with_name("sent.sqlite-wal").read_bytes()
    assert b"Some GPU" not in stored
    assert b"signature" not in stored
    assert path.stat().st_mode & 0o777 == 0o600
    first.close()
    again = SentReports(task, path, KEY)
    assert again.all() == [one]
    again.close()


def test_notes_are_of_one_task(task: Task, tmp_path: Path) -> None:
    first = SentReports(task, tmp_path / "sent.sqlite", KEY)
    first.note(Sent(BatchId(7), "GPU", 1, b"s"))
    other = SentReports(msgspec.structs.replace(task, name="other"), tmp_path / "sent.sqlite", KEY)
    assert other.all() == []
    other.close()
    first.close()


def test_a_file_of_another_key_or_none_is_named(task: Task, tmp_path: Path) -> None:
    made = SentReports(task, tmp_path / "sent.sqlite", KEY)
    made.note(Sent(BatchId(7), "GPU", 1, b"s"))
    made.close()
    other = SentReports(task, tmp_path / "sent.sqlite", bytes(32))
    with pytest.raises(SpoolError, match="key of the spool"):
        other.all()
    other.close()
    (tmp_path / "none.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(SpoolError, match="cannot be used"):
        SentReports(task, tmp_path / "none.sqlite", KEY)


def test_what_is_noted_is_forgotten_a_batch_after_its_end_but_for_the_newest(task: Task) -> None:
    sent = SentReports(task)
    for batch in (7, 8, 9):
        sent.note(Sent(BatchId(batch), "GPU", 1, b"s"))
    sent.forget(9 * DAY_S - 1)
    assert [each.batch for each in sent.all()] == [7, 8, 9]
    sent.forget(9 * DAY_S)
    assert [each.batch for each in sent.all()] == [8, 9]
    sent.forget(99 * DAY_S)
    assert [each.batch for each in sent.all()] == [9]


def test_a_clock_that_was_ahead_and_is_set_back_begins_no_batch_anew(task: Task) -> None:
    classes = LocalClasses(task, SentReports(task))
    one = classes.of("GPU", signature_of(task, 1))

    def send(day: int) -> bool:
        classes.forget(day * DAY_S)
        if allowed := classes.may_send(one, 0, day * DAY_S):
            classes.note(one, 0, day * DAY_S)
        return allowed

    assert [send(day) for day in (7, 7, 7)] == [True, True, False]
    assert [send(day) for day in (9, 7, 8, 9, 9)] == [True, False, True, True, False]


def test_a_class_is_known_again_by_a_signature_that_is_only_like_its_representative(task: Task) -> None:
    sent = SentReports(task)
    first = LocalClasses(task, sent)
    known = signature_of(task, 1)
    for _ in range(2):
        first.note(first.of("GPU", known), 0, DAY_S)
    values = known.values.copy()
    values[:10] += np.uint32(1)
    second = LocalClasses(task, sent)
    alike = second.of("GPU", Signature(known.scheme, values))
    assert not second.may_send(alike, 0, DAY_S)
    assert second.may_send(alike, 1, DAY_S), "another counter set"
    assert second.may_send(second.of("Other GPU", known), 0, DAY_S)
    assert second.may_send(second.of("GPU", signature_of(task, 2)), 0, DAY_S)
