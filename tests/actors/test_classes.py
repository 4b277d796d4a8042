"""Classes are merged and split while reports lie in shards."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.actors.classes import Classes
from penrose_ray.aggregate.arrival import Arrival
from penrose_ray.aggregate.service import ShardService
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.packing import Slots, pack
from penrose_ray.errors import ConfigError
from penrose_ray.snippet.journal import ClassJournal, SnippetClass
from penrose_ray.snippet.minhash import FUNCTIONS, Signature, scheme
from penrose_ray.types import ClassId, ReportId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from penrose_ray.task import Task

NOW_S = 1_750_000_000.0
HOUR = int(NOW_S // 3600)


class Local:
    """Matcher and two shards in this process."""

    def __init__(self, home: Path, task: Task) -> None:
        self.task = task
        self.journal = ClassJournal(home / "classes", task.signature_scheme, task.similarity)
        self.shards = [ShardService(home / f"shard-{n}", task, ManualClock(NOW_S)) for n in range(2)]
        self.forgotten = 0
        self.held: list[bool] = []

    def classes(self) -> Sequence[SnippetClass]:
        return self.journal.classes()

    def merge(self, kept: ClassId, gone: ClassId) -> None:
        self.journal.merge(kept, gone)

    def found(self, class_id: ClassId, signature: bytes) -> SnippetClass:
        return self.journal.split(class_id, Signature.from_bytes(self.task.signature_scheme, signature))

    def match(self, gpu_model: str, signatures: Sequence[bytes]) -> Sequence[SnippetClass]:
        scheme_id = self.task.signature_scheme
        return self.journal.match([(gpu_model, Signature.from_bytes(scheme_id, each)) for each in signatures])

    def signatures(self, class_id: ClassId) -> Mapping[bytes, bytes]:
        return {
            each: raw for shard in self.shards for each, raw in shard.regroup.signatures(class_id).items()
        }

    def split(self, class_id: ClassId, classes: Mapping[bytes, ClassId]) -> None:
        for shard in self.shards:
            shard.regroup.split(class_id, classes)

    def forget_classes(self) -> None:
        self.forgotten += 1

    def hold(self, *, held: bool) -> None:
        self.held.append(held)

    def report(self, number: int, signature: Signature) -> bytes:
        """Report `number` to its shard; the hash of its snippet."""
        (found,) = self.journal.match([("model", signature)])
        profile = self.task.profile()
        bins = np.zeros(128, np.int64)
        bins[0] = self.task.samples_per_histogram
        arrival = Arrival(
            ReportId(hashlib.sha256(f"{number}".encode()).digest()),
            found.class_id,
            signature.digest(),
            0,
            HOUR,
            signature.to_bytes(),
            self.task.cipher().encryptor().encrypt(pack(Slots(bins, 0, 1), profile)),
        )
        (answer,) = self.shards[number % 2].accept([arrival])
        assert answer.outcome.acknowledged
        return signature.digest()

    def weights(self) -> dict[str, int]:
        """Reports of each class, over both shards."""
        found: dict[str, int] = {}
        for shard in self.shards:
            for key, weight in shard.weights().items():
                found[key.class_id.hex()] = found.get(key.class_id.hex(), 0) + weight
        return found


@pytest.fixture
def local(tmp_path: Path, make_task: Callable[..., Task]) -> Iterator[Local]:
    made = Local(tmp_path, make_task(slot_profile="plain3072"))
    yield made
    made.journal.close()
    for shard in made.shards:
        shard.close()


def signature(local: Local, changed: int) -> Signature:
    """One program's signature with so many values of each view changed."""
    size = scheme(local.task.signature_scheme).size
    values = np.random.default_rng(1).integers(0, 2**32, size, np.uint32)
    values.reshape(-1, FUNCTIONS)[:, 1 : 1 + changed] += 1
    return Signature(local.task.signature_scheme, values)


def test_a_split_takes_along_what_is_nearer_and_all_of_it(local: Local) -> None:
    """Two programs, alike enough to be one class: 4 or 3 of 100 values differ."""
    first = local.report(0, signature(local, 0))
    for number in (1, 2, 3):
        local.report(number, signature(local, 0))
    other = local.report(4, signature(local, 4))
    local.report(5, signature(local, 4))
    local.report(6, signature(local, 3))
    classes = Classes(local, local.task)
    (only,) = classes.list()
    assert local.weights() == {only["class_id"]: 7}
    with pytest.raises(ConfigError, match="founded"):
        classes.split(only["class_id"], first.hex())
    with pytest.raises(ConfigError, match="No report"):
        classes.split(only["class_id"], "00" * 32)
    new = classes.split(only["class_id"], other.hex())
    assert local.weights() == {only["class_id"]: 4, new: 3}
    assert (local.forgotten, local.held) == (1, [True, False, True, False])
    assert len(classes.list()) == 2
    local.report(7, signature(local, 4))
    assert local.weights()[new] == 4


def test_merged_classes_are_listed_with_the_name_that_stays(local: Local) -> None:
    local.report(0, signature(local, 0))
    local.report(1, signature(local, 80))
    classes = Classes(local, local.task)
    kept, gone = (each["class_id"] for each in classes.list())
    classes.merge(kept, gone)
    assert {each["class_id"]: each["merged_into"] for each in classes.list()} == {kept: "", gone: kept}


def test_a_merge_is_undone_with_the_reports_that_came_since(local: Local) -> None:
    local.report(0, signature(local, 0))
    other = local.report(1, signature(local, 80))
    classes = Classes(local, local.task)
    kept, gone = (each["class_id"] for each in classes.list())
    classes.merge(kept, gone)
    for number in (2, 3):
        local.report(number, signature(local, 80))
    assert local.weights() == {kept: 3, gone: 1}
    assert classes.split(kept, other.hex()) == gone
    assert local.weights() == {kept: 1, gone: 3}
    assert {each["merged_into"] for each in classes.list()} == {""}


def test_a_split_finds_reports_of_what_was_merged(local: Local) -> None:
    local.report(0, signature(local, 0))
    for number in (1, 2):
        local.report(number, signature(local, 80))
    other = local.report(3, signature(local, 84))
    classes = Classes(local, local.task)
    kept, gone = (each["class_id"] for each in classes.list())
    classes.merge(kept, gone)
    new = classes.split(kept, other.hex())
    assert local.weights() == {kept: 1, gone: 2, new: 1}


def test_classes_of_a_task_with_noise_are_not_merged(local: Local, make_task: Callable[..., Task]) -> None:
    """A client may send r reports of each: more than the noise of one sum hides."""
    noisy = make_task(slot_profile="plain3072", noise_sigma=400.0, noise_epsilon=6.0, noise_delta=1e-5)
    local.report(0, signature(local, 0))
    local.report(1, signature(local, 80))
    classes = Classes(local, noisy)
    kept, gone = (each["class_id"] for each in classes.list())
    with pytest.raises(ConfigError, match="noise"):
        classes.merge(kept, gone)
    assert {each["merged_into"] for each in classes.list()} == {""}


@pytest.mark.parametrize("name", ["x", "00", "00" * 16])
def test_what_is_no_class_is_refused(local: Local, name: str) -> None:
    local.report(0, signature(local, 0))
    (only,) = Classes(local, local.task).list()
    with pytest.raises(ConfigError):
        Classes(local, local.task).merge(only["class_id"], name)
    with pytest.raises(ConfigError):
        Classes(local, local.task).split(name, "11" * 32)
