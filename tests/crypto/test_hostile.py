"""What the sum rule catches and what it cannot, at the edges of the slots: the claims of PACKING.md."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.crypto.accumulate import Accumulator
from penrose_ray.crypto.ciphertext import join
from penrose_ray.crypto.packing import BINS, SlotProfile, Slots, check_sum, pack, profile, unpack
from penrose_ray.errors import CapacityError, SumRuleError

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.private_key import PrivateKey

H = 10_000
names = st.sampled_from(["std3072", "std2048", "compact3072"])
places = st.integers(0, BINS - 1)


def one_bin(place: int, value: int, real_reports: int = 1, unfilled: int = 0) -> Slots:
    bins = np.zeros(BINS, dtype=np.int64)
    bins[place] = value
    return Slots(bins, unfilled, real_reports)


def shift(place: int, slot_profile: SlotProfile) -> tuple[int, int]:
    """Index of the plaintext, and weight of bin `place` in it."""
    per = slot_profile.bins_per_ciphertext
    return place // per, 1 << (slot_profile.slot_bits * (place % per))


def honest_sum(seed: int, reports: int) -> Slots:
    draw = random.Random(seed)  # noqa: S311 - a seeded test
    filled = sum(draw.choice([H, H // 2, 0]) for _ in range(reports))
    counts = np.bincount([draw.randrange(BINS) for _ in range(filled)], minlength=BINS)
    return Slots(counts.astype(np.int64), H * reports - filled, draw.randrange(reports + 1))


@given(name=names, place=places)
def test_a_sum_at_capacity_opens_whatever_its_reports(name: str, place: int) -> None:
    slot_profile = profile(name)
    capacity = slot_profile.capacity(H)
    worst = one_bin(place, H * capacity, real_reports=capacity)
    opened = unpack(pack(worst, slot_profile), slot_profile)
    check_sum(opened, weight=capacity, samples_per_histogram=H)
    assert opened.bins[place] == H * capacity


@given(name=names, place=places, extra=st.integers(1, 3))
def test_beyond_capacity_a_slot_would_run_over_and_the_rule_would_say_so(
    name: str, place: int, extra: int
) -> None:
    """What the public account prevents: capacity + 1 full reports in one bin do not fit its slot."""
    slot_profile = profile(name)
    capacity = slot_profile.capacity(H)
    plaintexts = list(pack(one_bin(place, H * capacity, real_reports=capacity), slot_profile))
    at, weight = shift(place, slot_profile)
    plaintexts[at] += H * extra * weight
    with pytest.raises(SumRuleError):
        check_sum(unpack(plaintexts, slot_profile), weight=capacity + extra, samples_per_histogram=H)


def test_the_account_refuses_before_a_slot_runs_over(
    any_profile: SlotProfile, key_for: Callable[[SlotProfile], PrivateKey]
) -> None:
    """Real ciphertexts: a sum of capacity - 1 reports takes one more, and not two."""
    key = key_for(any_profile)
    n = int(key.public_key.n)
    capacity = any_profile.capacity(H)

    def sealed(reports: int) -> bytes:
        plaintexts = pack(one_bin(5, H * reports, real_reports=reports), any_profile)
        return join([1 + m * n for m in plaintexts], any_profile)

    total = Accumulator(key.public_key, any_profile, capacity=capacity)
    total.merge(sealed(capacity - 1), capacity - 1)
    with pytest.raises(CapacityError):
        total.add_many([sealed(1), sealed(1)])
    total.add(sealed(1))
    with pytest.raises(CapacityError):
        total.add(sealed(1))
    opened = unpack(key.decrypt(total.to_bytes(), any_profile), any_profile)
    check_sum(opened, weight=capacity, samples_per_histogram=H)


@given(name=names, data=st.data())
def test_any_report_whose_total_is_not_h_is_caught(name: str, data: st.DataObject) -> None:
    slot_profile = profile(name)
    honest = honest_sum(data.draw(st.integers(0, 1 << 32)), reports=20)
    plaintexts = list(pack(honest, slot_profile))
    total = data.draw(st.integers(0, slot_profile.slot_max - 21 * H).filter(lambda value: value != H))
    at, weight = shift(data.draw(places), slot_profile)
    plaintexts[at] += total * weight
    with pytest.raises(SumRuleError):
        check_sum(unpack(plaintexts, slot_profile), weight=21, samples_per_histogram=H)


@given(data=st.data(), n=st.integers(1 << 3071, (1 << 3072) - 1))
def test_a_random_plaintext_is_caught(data: st.DataObject, n: int) -> None:
    """The largest thing a client can write: any number below n, which also wraps around."""
    std = profile("std3072")
    plaintexts = list(pack(honest_sum(data.draw(st.integers(0, 1 << 32)), reports=5), std))
    hostile = random.Random(data.draw(st.integers(0, 1 << 32)))  # noqa: S311 - a seeded test
    plaintexts[data.draw(st.integers(0, 1))] += hostile.randrange(n)
    opened = [m % n for m in plaintexts]
    with pytest.raises(SumRuleError):
        check_sum(unpack(opened, std), weight=6, samples_per_histogram=H)


@given(seed=st.integers(0, 1 << 32), source=places, target=places)
def test_a_borrow_moves_mass_between_bins_unseen(seed: int, source: int, target: int) -> None:
    """The limit that is documented: -k in one bin and +k in another, when k is really there."""
    std = profile("std3072")
    honest = honest_sum(seed, reports=20)
    stolen = int(honest.bins[source])
    plaintexts = list(pack(honest, std))
    hostile = [0, 0]
    at, weight = shift(source, std)
    hostile[at] -= stolen * weight
    at, weight = shift(target, std)
    hostile[at] += (stolen + H) * weight
    opened = unpack([a + b for a, b in zip(plaintexts, hostile, strict=True)], std)
    check_sum(opened, weight=21, samples_per_histogram=H)
    expected = honest.bins.copy()
    expected[source] -= stolen
    expected[target] += stolen + H
    assert opened.bins.tolist() == expected.tolist()


@given(seed=st.integers(0, 1 << 32), source=places, greed=st.integers(1, 10**6))
def test_a_borrow_of_more_than_is_there_is_caught(seed: int, source: int, greed: int) -> None:
    std = profile("std3072")
    honest = honest_sum(seed, reports=20)
    plaintexts = list(pack(honest, std))
    at, weight = shift(source, std)
    plaintexts[at] -= (int(honest.bins[source]) + greed) * weight
    other_at, other = shift((source + 1) % BINS, std)
    plaintexts[other_at] += (int(honest.bins[source]) + greed + H) * other
    n = 1 << 3071 | 12_345
    opened = [m % n for m in plaintexts]
    with pytest.raises(SumRuleError):
        check_sum(unpack(opened, std), weight=21, samples_per_histogram=H)
