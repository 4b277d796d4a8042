from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penrose_ray.crypto.accumulate import Accumulator, Accumulators, validate
from penrose_ray.crypto.blinding import Encryptor
from penrose_ray.crypto.ciphertext import join
from penrose_ray.crypto.packing import (
    BINS,
    NoiseOffsets,
    SlotProfile,
    Slots,
    check_sum,
    pack,
    profile,
    unpack,
)
from penrose_ray.errors import CapacityError, CiphertextError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.private_key import PrivateKey

H = 10_000


def seal(key: PrivateKey, slot_profile: SlotProfile, reports: list[Slots]) -> list[bytes]:
    encryptor = Encryptor(key.public_key, slot_profile, exponent="short")
    return [encryptor.encrypt(pack(report, slot_profile)) for report in reports]


def test_sum_of_mixed_reports_opens_to_the_sum_of_their_slots(
    any_profile: SlotProfile,
    key_for: Callable[[SlotProfile], PrivateKey],
    draw_report: Callable[[int], Slots],
) -> None:
    key = key_for(any_profile)
    reports = [draw_report(seed) for seed in range(12)]
    blobs = seal(key, any_profile, reports)
    one, two = (Accumulator(key.public_key, any_profile, capacity=100) for _ in range(2))
    one.add_many(blobs[:5])
    for blob in blobs[5:9]:
        one.add(blob)
    two.add_many(blobs[9:])
    one.merge(two.to_bytes(), two.weight)
    assert one.weight == 12
    opened = unpack(key.decrypt(one.to_bytes(), any_profile), any_profile)
    assert opened.bins.tolist() == sum(report.bins for report in reports).tolist()  # type: ignore[union-attr]
    assert opened.unfilled == sum(report.unfilled for report in reports)
    assert opened.real_reports == sum(report.real_reports for report in reports)
    check_sum(opened, weight=12, samples_per_histogram=H)


def test_addition_commutes(key: PrivateKey, std: SlotProfile, draw_report: Callable[[int], Slots]) -> None:
    blobs = seal(key, std, [draw_report(seed) for seed in range(4)])
    sums = []
    for order in (blobs, blobs[::-1]):
        accumulator = Accumulator(key.public_key, std, capacity=4)
        accumulator.add_many(order)
        sums.append(accumulator.to_bytes())
    assert sums[0] == sums[1]


def test_refusal_at_capacity_changes_nothing(
    key: PrivateKey, std: SlotProfile, draw_report: Callable[[int], Slots]
) -> None:
    blobs = seal(key, std, [draw_report(seed) for seed in range(3)])
    accumulator = Accumulator(key.public_key, std, capacity=2)
    accumulator.add(blobs[0])
    before = accumulator.to_bytes()
    with pytest.raises(CapacityError, match="takes at most 2"):
        accumulator.add_many(blobs[1:])
    with pytest.raises(CapacityError):
        accumulator.merge(blobs[1], 2)
    assert (accumulator.to_bytes(), accumulator.weight) == (before, 1)
    accumulator.add(blobs[1])
    with pytest.raises(CapacityError):
        accumulator.add(blobs[2])
    assert accumulator.weight == 2


@pytest.mark.parametrize("weight", [0, -1])
def test_a_weight_below_one_is_refused(key: PrivateKey, std: SlotProfile, weight: int) -> None:
    accumulator = Accumulator(key.public_key, std, capacity=2)
    with pytest.raises(ValueError, match="1 or more"):
        accumulator.add(bytes([1] * 1536), weight)


def test_a_bad_blob_in_a_batch_changes_nothing(
    key: PrivateKey, std: SlotProfile, draw_report: Callable[[int], Slots]
) -> None:
    (good,) = seal(key, std, [draw_report(1)])
    accumulator = Accumulator(key.public_key, std, capacity=10)
    with pytest.raises(CiphertextError):
        accumulator.add_many([good, bytes(1536)])
    with pytest.raises(CiphertextError):
        accumulator.add_many([good, good[:-1]])
    assert accumulator.weight == 0
    accumulator.add_many([])
    assert key.decrypt(accumulator.to_bytes(), std) == (0, 0)


@pytest.mark.parametrize("switch", ["0", "1"])
def test_scattered_reports_reach_the_sums_of_their_keys(
    key: PrivateKey, std: SlotProfile, monkeypatch: pytest.MonkeyPatch, switch: str
) -> None:
    """With and without the native kernel: sums of many keys, fed in small and large batches."""
    monkeypatch.setenv("PENROSE_NATIVE", switch)
    n = int(key.public_key.n)
    zero = pow(3, n, n * n)
    draw = random.Random(8)  # noqa: S311 - a seeded test
    sums: Accumulators[str] = Accumulators(key.public_key, std, capacity=1_000)
    expected: dict[str, list[int]] = {}
    weights: Counter[str] = Counter()
    for size in (1, 40, 5, 120, 31):
        names = [draw.choice("aaaabcdefgh") for _ in range(size)]
        values = [(draw.getrandbits(3000), draw.getrandbits(3000)) for _ in names]
        blobs = [join([(1 + m * n) * zero % (n * n) for m in pair], std) for pair in values]
        sums.add_many(list(zip(names, blobs, strict=True)))
        weights.update(names)
        for name, pair in zip(names, values, strict=True):
            old = expected.get(name, [0, 0])
            expected[name] = [(a + b) % n for a, b in zip(old, pair, strict=True)]
    keys = sums.keys()
    assert {name: list(key.decrypt(sums.to_bytes(name), std)) for name in keys} == expected
    assert {name: sums.weight(name) for name in keys} == weights
    sums.discard("a")
    assert sums.weight("a") == 0
    assert key.decrypt(sums.to_bytes("a"), std) == (0, 0)


def test_one_full_sum_keeps_a_whole_batch_out(
    key: PrivateKey, std: SlotProfile, draw_report: Callable[[int], Slots]
) -> None:
    blobs = seal(key, std, [draw_report(seed) for seed in range(3)])
    sums: Accumulators[str] = Accumulators(key.public_key, std, capacity=1)
    sums.add_many([("a", blobs[0])])
    with pytest.raises(CapacityError):
        sums.add_many([("b", blobs[1]), ("a", blobs[2])])
    assert sums.weight("b") == 0
    assert key.decrypt(sums.to_bytes("b"), std) == (0, 0)


def test_noise_has_no_weight(key: PrivateKey, std: SlotProfile, draw_report: Callable[[int], Slots]) -> None:
    offsets = NoiseOffsets(bin=12, unfilled=136)
    noise = np.arange(BINS) % 25 - 12
    carrier = Slots(noise + offsets.bin, offsets.unfilled - int(noise.sum()), 0)
    report = draw_report(5)
    sealed, noisy = seal(key, std, [report, carrier])
    sums: Accumulators[str] = Accumulators(key.public_key, std, capacity=std.capacity(H, offsets))
    sums.add_many([("a", sealed)])
    sums.add_noise("a", noisy)
    opened = unpack(key.decrypt(sums.to_bytes("a"), std), std)
    check_sum(opened, weight=sums.weight("a"), samples_per_histogram=H, noise=offsets)
    assert opened.bins.tolist() == (report.bins + noise + 12).tolist()
    with pytest.raises(ValueError, match="already"):
        sums.add_noise("a", noisy)


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_validation_finds_exactly_the_bad_blobs(key: PrivateKey, data: st.DataObject) -> None:
    std = profile("std3072")
    p, q = key.factors()
    n2 = int(key.public_key.n_squared)
    low = (1).to_bytes(768, "little")
    bad = {
        "zero": bytes(768) + low,
        "p": low + (p * 77).to_bytes(768, "little"),
        "q": (q * q).to_bytes(768, "little") + low,
        "n": (p * q).to_bytes(768, "little") + low,
        "n2": n2.to_bytes(768, "little") + low,
        "short": low,
        "long": low * 3,
    }
    kinds = data.draw(st.lists(st.sampled_from([*bad, *["good"] * 12]), max_size=20))
    good = [
        data.draw(st.integers(1, n2 - 1)).to_bytes(768, "little") + low if kind == "good" else bad[kind]
        for kind in kinds
    ]
    faults = validate(key.public_key, std, good)
    assert set(faults) == {index for index, kind in enumerate(kinds) if kind != "good"}
    assert all(isinstance(error, CiphertextError) for error in faults.values())


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "1536 bytes, this one 0"),
        (bytes(1536), "outside the range"),
        (b"\xff" * 1536, "outside the range"),
    ],
)
def test_validation_says_what_is_wrong(key: PrivateKey, std: SlotProfile, blob: bytes, message: str) -> None:
    assert message in str(validate(key.public_key, std, [blob])[0])
