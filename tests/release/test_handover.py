from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.errors import ReleaseFormatError
from penrose_ray.release.handover import VERSION, Handover, Withheld, build, decode, make

if TYPE_CHECKING:
    from penrose_ray.task import Task
    from penrose_ray.types import ClassId
    from tests.release.conftest import Parts


def model_of(class_id: ClassId) -> str:
    return f"model {class_id[0]}"


@pytest.fixture(scope="session")
def handover(task: Task, parts: Parts) -> Handover:
    shards = [parts.one("a", 2, 1), parts.one("b", 4), parts.one("a", 1, 2), parts.one("c", 6)]
    return build(task, shards, model_of, parts.encryptor)


def test_shards_parts_are_merged_and_the_gate_holds(handover: Handover, parts: Parts) -> None:
    one, other = parts.one("a", 2, 1), parts.one("c", 6)
    by_class = {entry.class_id: entry for entry in handover.entries}
    assert by_class.keys() == {one.class_id, other.class_id}
    assert parts.opened(by_class[one.class_id].blob, 6) == (3, 3)
    assert parts.opened(by_class[other.class_id].blob, 6) == (6, 0)
    assert by_class[one.class_id].gpu_model == model_of(one.class_id)
    assert handover.withheld == Withheld(sums=1, reports=4)


def test_checksums_of_parts_are_combined(handover: Handover, parts: Parts) -> None:
    first, second = parts.one("a", 2, 1), parts.one("a", 1, 2)
    expected = bytes(a ^ b for a, b in zip(first.id_checksum, second.id_checksum, strict=True))
    assert [e.id_checksum for e in handover.entries if e.class_id == first.class_id] == [expected]


def test_what_leaves_is_rerandomised(task: Task, parts: Parts) -> None:
    part = parts.one("a", 5)
    (first,) = build(task, [part], model_of, parts.encryptor).entries
    (second,) = build(task, [part], model_of, parts.encryptor).entries
    assert len({part.blob, first.blob, second.blob}) == 3
    assert parts.opened(first.blob, 5) == parts.opened(second.blob, 5) == (5, 0)


def test_more_than_a_sum_may_hold_becomes_entries_that_each_pass(task: Task, parts: Parts) -> None:
    most = task.profile().slot_max // 10
    small = msgspec.structs.replace(task, samples_per_histogram=most)
    assert small.capacity() == 10
    shards = [parts.one("a", count) for count in (9, 7, 6, 3)]
    result = build(small, shards, model_of, parts.encryptor)
    assert sorted(entry.weight for entry in result.entries) == [6, 9, 10]
    shards = [parts.one("a", 9), parts.one("a", 3)]
    result = build(small, shards, model_of, parts.encryptor)
    assert [entry.weight for entry in result.entries] == [9]
    assert result.withheld == Withheld(sums=1, reports=3)


def test_classes_that_were_merged_are_one_entry_and_need_reports_for_each(task: Task, parts: Parts) -> None:
    a, b, c = (parts.one(name, 1).class_id for name in "abc")
    few = [parts.one("a", 5), parts.one("b", 4)]
    made = make(task, few, model_of, parts.encryptor, into={a: b})
    assert made.handover.withheld == Withheld(sums=1, reports=9)
    enough = [parts.one("a", 4, 1), parts.one("b", 2), parts.one("c", 8)]
    (entry,) = make(task, enough, model_of, parts.encryptor, into={a: b, b: c}).handover.entries
    assert (entry.class_id, entry.gpu_model, entry.weight) == (c, model_of(c), 15)
    assert parts.opened(entry.blob, 15) == (14, 1)
    with pytest.raises(ValueError, match="merged into itself"):
        make(task, few, model_of, parts.encryptor, into={a: b, b: a})


def test_a_merged_sum_needs_r_reports_a_class_and_client_up_to_its_tokens(task: Task) -> None:
    real = msgspec.structs.replace(
        task, tokens_per_day=8, reports_per_class=3, min_contributors=50, hostile_clients=10
    )
    assert [real.real_reports_needed(n) for n in (1, 2, 3)] == [50 * each + 80 for each in (3, 6, 8)]


def test_parts_thinned_at_different_rates_are_not_mixed(task: Task, parts: Parts) -> None:
    shards = [parts.one("a", 5), replace(parts.one("a", 6), keep_share=0.25), parts.one("a", 1)]
    entries = build(task, shards, model_of, parts.encryptor).entries
    assert [(entry.weight, entry.keep_share) for entry in entries] == [(6, 0.25), (6, 1.0)]


def test_parts_of_two_batches_are_no_release(task: Task, parts: Parts) -> None:
    with pytest.raises(ValueError, match="one batch"):
        build(task, [parts.one("a", 5), parts.one("a", 5, batch=8)], model_of, parts.encryptor)


def test_the_encoding_round_trips(handover: Handover) -> None:
    assert decode(handover.encode()) == handover


@given(data=st.data())
def test_other_bytes_are_refused(handover: Handover, data: st.DataObject) -> None:
    raw = bytearray(handover.encode())
    how = data.draw(st.sampled_from(["cut", "append", "version"]))
    if how == "cut":
        del raw[data.draw(st.integers(0, len(raw) - 1)) :]
    elif how == "append":
        raw += data.draw(st.binary(min_size=1, max_size=8))
    else:
        raw[0] = data.draw(st.integers(0, 255).filter(lambda version: version != VERSION))
    with pytest.raises(ReleaseFormatError):
        decode(bytes(raw))


def test_a_longer_form_of_the_same_values_is_refused(handover: Handover) -> None:
    fields = msgspec.msgpack.decode(handover.encode()[1:])
    reordered = msgspec.msgpack.encode(dict(reversed(fields.items())))
    with pytest.raises(ReleaseFormatError, match="canonical"):
        decode(bytes([VERSION]) + reordered)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weight": 0}, "empty"),
        ({"blob": b""}, "empty"),
        ({"class_id": b"short"}, "class ids"),
        ({"id_checksum": b""}, "checksums"),
        ({"keep_share": 0.0}, "keep share"),
        ({"keep_share": 1.5}, "keep share"),
        ({"class_id": bytes([255] * 16)}, "order"),
    ],
)
def test_an_inconsistent_handover_is_refused(
    handover: Handover, changes: dict[str, object], reason: str
) -> None:
    first, *rest = handover.entries
    altered = msgspec.structs.replace(handover, entries=(msgspec.structs.replace(first, **changes), *rest))
    with pytest.raises(ReleaseFormatError, match=reason):
        decode(altered.encode())


def test_reports_that_came_after_a_merge_need_the_same(task: Task, parts: Parts) -> None:
    a, b = (parts.one(name, 1).class_id for name in "ab")
    made = make(task, [parts.one("b", 9)], model_of, parts.encryptor, into={a: b})
    assert made.handover.withheld == Withheld(sums=1, reports=9)
