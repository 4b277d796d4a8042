"""Reports in the clear add up like sealed ones, and nothing takes them for sealed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.crypto.accumulate import Accumulators, Validator
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.cipher import Plain, Sealed, cipher_of
from penrose_ray.crypto.packing import Slots, pack, profile, unpack
from penrose_ray.crypto.plain import PlainEncryptor, pack_many, plaintexts_of
from penrose_ray.errors import CapacityError, CiphertextError, ConfigError, PolicyError, WrongKeyError
from penrose_ray.policy import OwnerPolicy
from penrose_ray.task import sign

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task

LAYOUT = profile("plain3072")


def slots_of(number: int) -> Slots:
    rng = np.random.default_rng(number)
    return Slots(rng.integers(0, 2**40, 128), int(rng.integers(0, 2**40)), int(rng.integers(0, 2)))


def test_plain_blobs_are_the_plaintexts_that_sealing_would_encrypt() -> None:
    rng = np.random.default_rng(2)
    for name in ("std3072", "std2048", "compact3072"):
        chosen = profile(name)
        most = min(chosen.slot_max, 2**40)
        counts = rng.integers(0, most, (5, 128))
        unfilled, real = rng.integers(0, most, 5), rng.integers(0, 2, 5)
        blobs = pack_many(counts, unfilled, real, chosen)
        width = chosen.plaintext_bytes
        assert blobs.shape == (5, width * chosen.ciphertexts)
        for row in range(5):
            raw = blobs[row].tobytes()
            found = [int.from_bytes(raw[at : at + width], "little") for at in range(0, len(raw), width)]
            assert found == list(pack(Slots(counts[row], int(unfilled[row]), int(real[row])), chosen))


@pytest.mark.parametrize("name", ["plain3072", "std3072"])
def test_sums_hold_every_slot_exactly(name: str, design_keys: DesignKeys) -> None:
    layout = profile(name)
    cipher = cipher_of(design_keys.paillier.public_key, layout)
    reports = [slots_of(number) for number in range(6)]
    blobs = [cipher.encryptor().encrypt(pack(each, layout)) for each in reports]
    assert cipher.validator().faults(blobs) == {}
    sums = cipher.accumulators(capacity=6)
    sums.add_many([("a", blobs[0]), ("b", blobs[1]), ("a", blobs[2])])
    sums.add_groups({"a": [1, 2], "b": [0]}, blobs[3:])
    part = cipher.encryptor().encrypt(pack(reports[4], layout))
    left = cipher.difference(sums.to_bytes("a"), part)

    def opened(blob: bytes) -> Slots:
        raw = design_keys.paillier.decrypt(blob, layout) if layout.sealed else plaintexts_of(blob, layout)
        return unpack(raw, layout)

    for blob, members in (
        (sums.to_bytes("a"), (0, 2, 4, 5)),
        (sums.to_bytes("b"), (1, 3)),
        (left, (0, 2, 5)),
    ):
        found = opened(cipher.encryptor().rerandomise(blob))
        assert (found.bins == sum(reports[each].bins for each in members)).all()
        assert found.unfilled == sum(reports[each].unfilled for each in members)
        assert found.real_reports == sum(reports[each].real_reports for each in members)
    assert (sums.weight("a"), sums.weight("b"), sums.weight("c")) == (4, 2, 0)
    with pytest.raises(CapacityError):
        sums.add_many([("b", blobs[1]), *[("a", blobs[0])] * 3])
    assert (sums.weight("a"), sums.weight("b")) == (4, 2)
    sums.discard("a")
    assert sums.keys() == ["b"]


def test_full_slots_do_not_spill(design_keys: DesignKeys) -> None:
    sums = cipher_of(design_keys.paillier.public_key, LAYOUT).accumulators(capacity=2)
    half = Slots(np.full(128, LAYOUT.slot_max // 2), LAYOUT.slot_max // 2, LAYOUT.slot_max // 2)
    blob = PlainEncryptor(LAYOUT).encrypt(pack(half, LAYOUT))
    sums.add_many([(None, blob), (None, blob)])
    found = unpack(plaintexts_of(sums.to_bytes(None), LAYOUT), LAYOUT)
    assert set(found.bins.tolist()) == {found.unfilled} == {found.real_reports} == {LAYOUT.slot_max - 1}


def test_blobs_of_another_width_are_refused(design_keys: DesignKeys) -> None:
    cipher = cipher_of(design_keys.paillier.public_key, LAYOUT)
    whole = bytes(LAYOUT.blob_bytes)
    assert list(cipher.validator().faults([whole, whole[:-1], whole + b"0"])) == [1, 2]
    with pytest.raises(CiphertextError, match="768 bytes"):
        cipher.accumulators(capacity=9).merge(None, whole[:-1], 1)


def test_nothing_seals_with_a_plain_profile(design_keys: DesignKeys) -> None:
    key = design_keys.paillier.public_key
    assert isinstance(cipher_of(key, LAYOUT), Plain)
    assert isinstance(cipher_of(key, profile("std3072")), Sealed)
    for attempt in (
        lambda: Encryptor(key, LAYOUT),
        lambda: Accumulators(key, LAYOUT, capacity=1),
        lambda: Validator(key, LAYOUT),
        lambda: design_keys.paillier.decrypt(bytes(LAYOUT.blob_bytes), LAYOUT),
    ):
        with pytest.raises(WrongKeyError, match="seals nothing"):
            attempt()


def test_no_client_takes_a_plain_task(make_task: Callable[..., Task], design_keys: DesignKeys) -> None:
    task = make_task(slot_profile="plain3072")
    lenient = OwnerPolicy(allow_demo=True, least_contributors=1, least_sampling_interval=1)
    with pytest.raises(PolicyError, match="not encrypted"):
        lenient.check(task)
    serious = make_task(slot_profile="plain3072", demo=False, tokens_per_day=1, min_contributors=50)
    with pytest.raises(ConfigError, match="seals nothing"):
        sign(serious, design_keys.signing)
