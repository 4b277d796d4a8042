from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penrose_ray.errors import ConfigError, KeyFormatError, TaskError
from penrose_ray.task import FORMAT_VERSION, SignedTask, days_of_batch, sign, verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

SIGNER = Ed25519PrivateKey.from_private_bytes(bytes(32))
PINNED = SIGNER.public_key().public_bytes_raw()


@pytest.fixture
def task(make_task: Callable[..., Task]) -> Task:
    return make_task()


def signed_body(body: bytes) -> bytes:
    """What a design server would publish if it signed any bytes."""
    context = b"penrose-ray task v1\x00"
    return SignedTask(body, SIGNER.sign(context + body), PINNED).encode()


def test_a_signed_task_comes_back_equal(task: Task) -> None:
    read = verify(sign(task, SIGNER).encode(), trusted_signer=PINNED)

    assert read == task
    assert read.task_id == task.task_id == hashlib.sha256(task.encode()).digest()


def test_any_change_is_another_task(task: Task) -> None:
    changed = {
        "name": "other",
        "demo": False,
        "samples_per_histogram": 101,
        "sampling_interval": 9_999,
        "similarity": 0.86,
        "cover_rate": 0.2,
        "counter_sets": task.counter_sets[::-1],
        "identity": "keyed",
        "identity_key": b"k" * 32,
    }
    ids = {msgspec.structs.replace(task, **{field: value}).task_id for field, value in changed.items()}

    assert len(ids | {task.task_id}) == len(changed) + 1


def test_another_signer_is_refused_even_with_a_good_signature(task: Task) -> None:
    raw = sign(task, Ed25519PrivateKey.generate()).encode()

    with pytest.raises(TaskError, match="not by the pinned"):
        verify(raw, trusted_signer=PINNED)
    assert verify(raw) == task


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(position=st.integers(min_value=0), bit=st.integers(0, 7))
def test_no_flipped_bit_survives(task: Task, position: int, bit: int) -> None:
    raw = bytearray(sign(task, SIGNER).encode())
    raw[position % len(raw)] ^= 1 << bit

    with pytest.raises(TaskError):
        verify(bytes(raw), trusted_signer=PINNED)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(length=st.integers(min_value=0))
def test_a_cut_task_is_refused(task: Task, length: int) -> None:
    raw = sign(task, SIGNER).encode()

    with pytest.raises(TaskError):
        verify(raw[: length % len(raw)], trusted_signer=PINNED)


@given(st.binary(max_size=300))
def test_other_bytes_are_no_task(raw: bytes) -> None:
    with pytest.raises(TaskError):
        verify(raw)


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_a_signature_does_not_make_bytes_a_task(body: bytes) -> None:
    with pytest.raises(TaskError):
        verify(signed_body(bytes([FORMAT_VERSION]) + body), trusted_signer=PINNED)


def test_a_task_of_another_version_is_refused_with_both_versions(task: Task) -> None:
    with pytest.raises(TaskError, match="format version 03, this program reads 2"):
        verify(signed_body(b"\x03" + task.encode()[1:]), trusted_signer=PINNED)


def test_a_second_spelling_of_a_task_is_refused(task: Task) -> None:
    fields = msgspec.to_builtins(task, builtin_types=(bytes,))
    reordered = msgspec.msgpack.encode(dict(reversed(fields.items())))

    with pytest.raises(TaskError, match="canonical"):
        verify(signed_body(bytes([FORMAT_VERSION]) + reordered), trusted_signer=PINNED)


def test_an_unknown_field_is_refused(task: Task) -> None:
    fields = msgspec.to_builtins(task, builtin_types=(bytes,))
    extended = msgspec.msgpack.encode({**fields, "upload_names": True})

    with pytest.raises(TaskError, match="upload_names"):
        verify(signed_body(bytes([FORMAT_VERSION]) + extended), trusted_signer=PINNED)


def test_a_weak_key_is_refused_although_it_is_signed(make_task: Callable[..., Task]) -> None:
    weak = b"\x01" + (3072).to_bytes(2, "big") + ((1 << 3072) - 1).to_bytes(384, "big")

    with pytest.raises(KeyFormatError, match="factor"):
        verify(signed_body(make_task(public_key=weak).encode()), trusted_signer=PINNED)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"counter_sets": ()}, "at least one"),
        ({"rotation": ()}, "must not be empty and name each"),
        ({"rotation": (("duration",),)}, "name each"),
        ({"rotation": (("duration", "kind"), ())}, "must not be empty"),
        ({"rotation": (("duration", "kind", "dram"),)}, "name each"),
        ({"samples_per_histogram": 0}, "least value is 1"),
        ({"snippet_launches": 7}, "least value is 8"),
        ({"batch_s": 0}, "least value is 1"),
        ({"similarity": 0.0}, "Jaccard"),
        ({"similarity": 1.01}, "Jaccard"),
        ({"similarity": math.nan}, "Jaccard"),
        ({"cover_rate": 1.0}, "share"),
        ({"cover_rate": math.nan}, "share"),
        ({"noise_sigma": -1.0}, "least value is 0"),
        ({"noise_sigma": math.nan}, "finite"),
        ({"noise_sigma": math.inf}, "finite"),
        ({"min_samples": 101}, "exceeds samples_per_histogram"),
        ({"slot_profile": "std2048"}, "the key has 3072 bits"),
        ({"slot_profile": "std3027"}, "std3072"),
        ({"slot_profile": "paper1024"}, "benchmarks only"),
        ({"identity_key": bytes(32)}, "does not fit"),
        ({"identity": "keyed"}, "does not fit"),
        ({"identity": "oprf", "identity_key": bytes(31)}, "does not fit"),
        ({"demo": False}, "must have demo = true"),
        ({"demo": False, "tokens_per_day": 32}, "the floor is 50"),
        ({"min_contributors": 2**41}, "one sum holds"),
    ],
)
def test_values_that_cannot_work_are_named(
    make_task: Callable[..., Task], changed: dict[str, object], reason: str
) -> None:
    with pytest.raises(ConfigError, match=reason):
        sign(make_task(**changed), SIGNER)


def test_two_counter_sets_of_one_name_are_refused(make_task: Callable[..., Task], task: Task) -> None:
    with pytest.raises(ConfigError, match="names must differ"):
        make_task(counter_sets=task.counter_sets[:1] * 2).check()


def test_a_task_that_is_no_demo_passes_with_its_floor_kept(make_task: Callable[..., Task]) -> None:
    make_task(demo=False, tokens_per_day=32, min_contributors=50).check()


def test_capacity_is_what_fits_a_slot(task: Task) -> None:
    assert task.capacity() == (2**47 - 1) // 100


def test_batches_begin_at_multiples_of_their_length(make_task: Callable[..., Task]) -> None:
    task = make_task(batch_s=3600)

    assert [task.batch_of(time_s) for time_s in (0, 3599.999, 3600)] == [0, 0, 1]


@pytest.mark.parametrize("hours", range(1, 100))
def test_a_batch_touches_as_many_days_as_its_worst_place_does(hours: int) -> None:
    starts = range(0, 24 * hours, hours)
    most = max((start + hours - 1) // 24 - start // 24 + 1 for start in starts)
    assert days_of_batch(hours * 3600) == most


def test_the_key_of_a_task_is_the_design_server_s(task: Task, design_keys: DesignKeys) -> None:
    assert task.key().fingerprint == design_keys.paillier.public_key.fingerprint
