"""A reference program's reports: the classes of its snippets, and nothing that counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from e2e import fleet

from penrose_ray.actors.client import Enrolled
from penrose_ray.actors.reference import reference_reports
from penrose_ray.capture.formats import read_recording
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.packing import unpack
from penrose_ray.errors import ConfigError, QuotaError, SourceError
from penrose_ray.snippet.minhash import Signature
from penrose_ray.task import Task, verify

if TYPE_CHECKING:
    from pathlib import Path

    from penrose_ray.capture.recording import Recording
    from penrose_ray.crypto.keyfile import DesignKeys


class Coins:
    """Tokens that are bytes of any kind."""

    def __init__(self, count: int) -> None:
        self._coins = [bytes([number]) * 8 for number in range(count)]

    def top_up(self, *, early: bool = False) -> None:
        """There are no more."""

    def left(self, _day: int) -> int:
        return len(self._coins)

    def take(self, _day: int) -> bytes:
        return self._coins.pop()


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Six snippets of one program and two of another."""
    path = tmp_path / "trace.json.gz"
    fleet.write_trace(path, seed=1, rounds=2, programs=(fleet.GEMM, fleet.STENCIL, fleet.GEMM))
    return read_recording(path)


@pytest.fixture
def task(recording: Recording, design_keys: DesignKeys) -> Task:
    return verify(fleet.signed_task(design_keys, recording.counters).encode())


def test_one_report_a_class_and_counter_set_that_adds_nothing(
    recording: Recording, task: Task, design_keys: DesignKeys
) -> None:
    reports, receipt = reference_reports(recording, task, "both", clock=ManualClock())
    assert [each.share for each in receipt.classes] == [0.75, 0.25]  # 6 and 2 of 8 snippets
    assert [list(each.reports) for each in receipt.classes] == [
        [one.report_id.hex() for one in reports if one.signature == signature]
        for signature in dict.fromkeys(one.signature for one in reports)
    ]
    first, second = (
        Signature.from_bytes(task.signature_scheme, each)
        for each in dict.fromkeys(one.signature for one in reports)
    )
    assert first.jaccard(second) < task.similarity
    for each in reports:
        (plaintext,) = design_keys.paillier.decrypt_many([each.blob], task.profile())
        slots = unpack(plaintext, task.profile())
        assert (slots.bins.sum(), slots.real_reports, slots.unfilled) == (0, 0, task.samples_per_histogram)


def test_tokens_pay_for_the_largest_classes_first(recording: Recording, design_keys: DesignKeys) -> None:
    task = verify(fleet.signed_task(design_keys, recording.counters, tokens_per_day=4).encode())
    with pytest.raises(ConfigError, match="no issuer"):
        reference_reports(recording, task, "x", clock=ManualClock())
    reports, receipt = reference_reports(
        recording, task, "x", clock=ManualClock(), enrolled=Enrolled(Coins(1))
    )
    assert len(reports) == 1
    assert [each.reports for each in receipt.classes] == [(reports[0].report_id.hex(),)]
    assert reports[0].token
    with pytest.raises(QuotaError):
        reference_reports(recording, task, "x", clock=ManualClock(), enrolled=Enrolled(Coins(0)))


def test_too_few_launches_are_no_program(tmp_path: Path, task: Task) -> None:
    path = tmp_path / "short.json.gz"
    fleet.write_trace(path, seed=1, rounds=0)
    with pytest.raises(SourceError, match="make no snippet"):
        reference_reports(read_recording(path), task, "x", clock=ManualClock())
