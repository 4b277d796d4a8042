from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from penrose_ray.errors import CapacityError, ConfigError, SumRuleError

if TYPE_CHECKING:
    from collections.abc import Callable

H = 10_000


def slots_of(bins: list[int], unfilled: int = 0, real_reports: int = 0) -> Slots:
    return Slots(np.array(bins, dtype=np.int64), unfilled, real_reports)


@pytest.mark.parametrize(
    ("name", "bits", "ciphertexts", "slot_bits", "blob_bytes", "capacity"),
    [
        ("std3072", 3072, 2, 47, 1536, 14_073_748_835),
        ("std2048", 2048, 2, 31, 1024, 214_748),
        ("compact3072", 3072, 1, 23, 768, 838),
    ],
)
def test_profiles_are_the_published_ones(
    name: str, bits: int, ciphertexts: int, slot_bits: int, blob_bytes: int, capacity: int
) -> None:
    found = profile(name)
    assert (found.modulus_bits, found.ciphertexts, found.slot_bits) == (bits, ciphertexts, slot_bits)
    assert found.blob_bytes == blob_bytes
    assert found.capacity(H) == capacity


def test_all_slots_of_a_plaintext_fit_below_the_modulus(any_profile: SlotProfile) -> None:
    assert any_profile.slots_per_ciphertext * any_profile.slot_bits < any_profile.modulus_bits - 1


def test_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'std3072'"):
        profile("std3027")


def test_paper_profile_is_refused_outside_benchmarks() -> None:
    with pytest.raises(ConfigError, match="benchmarks only"):
        profile("paper1024")
    assert profile("paper1024", benchmark=True).blob_bytes == 32_768


def test_std_layout_is_64_bins_and_one_check_slot_each(std: SlotProfile) -> None:
    bins = list(range(1, BINS + 1))
    low, high = pack(slots_of(bins, unfilled=777, real_reports=1), std)
    assert low == sum(value << (47 * i) for i, value in enumerate([*bins[:64], 777]))
    assert high == sum(value << (47 * i) for i, value in enumerate([*bins[64:], 1]))


def test_compact_layout_ends_with_both_check_slots() -> None:
    bins = list(range(1, BINS + 1))
    (only,) = pack(slots_of(bins, unfilled=5, real_reports=1), profile("compact3072"))
    assert only == sum(value << (23 * i) for i, value in enumerate([*bins, 5, 1]))


@given(data=st.data(), name=st.sampled_from(["std3072", "std2048", "compact3072"]))
def test_unpack_returns_what_was_packed_up_to_the_widest_value(data: st.DataObject, name: str) -> None:
    slot_profile = profile(name)
    value = st.one_of(st.integers(0, slot_profile.slot_max), st.just(slot_profile.slot_max))
    bins = data.draw(st.lists(value, min_size=BINS, max_size=BINS))
    unfilled, real_reports = data.draw(value), data.draw(value)
    found = unpack(pack(slots_of(bins, unfilled, real_reports), slot_profile), slot_profile)
    assert found.bins.tolist() == bins
    assert (found.unfilled, found.real_reports) == (unfilled, real_reports)


@pytest.mark.parametrize("bad", [-1, 1 << 47])
@pytest.mark.parametrize("place", ["bin", "unfilled", "real_reports"])
def test_a_value_that_does_not_fit_is_refused(std: SlotProfile, bad: int, place: str) -> None:
    bins = [0] * BINS
    bins[127] = bad if place == "bin" else 0
    slots = slots_of(bins, bad if place == "unfilled" else 0, bad if place == "real_reports" else 0)
    with pytest.raises(CapacityError, match="does not fit"):
        pack(slots, std)


def test_slots_refuse_another_shape_or_type() -> None:
    with pytest.raises(ValueError, match="int64"):
        Slots(np.zeros(127, dtype=np.int64), 0, 0)
    with pytest.raises(ValueError, match="int64"):
        Slots(np.zeros(128, dtype=np.int32), 0, 0)  # type: ignore[arg-type]


def test_a_plaintext_wider_than_its_slots_is_no_sum(std: SlotProfile) -> None:
    with pytest.raises(SumRuleError, match="wider"):
        unpack((1 << (65 * 47), 0), std)


@given(data=st.data(), name=st.sampled_from(["std3072", "std2048", "compact3072"]))
def test_capacity_many_largest_reports_fit_and_one_more_may_not(data: st.DataObject, name: str) -> None:
    """All samples of every report in one bin is the worst case of an honest sum."""
    slot_profile = profile(name)
    samples = data.draw(st.integers(1, 100_000))
    capacity = slot_profile.capacity(samples)
    assert capacity * samples <= slot_profile.slot_max < (capacity + 1) * samples
    place = data.draw(st.integers(0, BINS - 1))
    bins = [0] * BINS
    bins[place] = capacity * samples
    slots = slots_of(bins, unfilled=0, real_reports=min(capacity, slot_profile.slot_max))
    assert unpack(pack(slots, slot_profile), slot_profile).bins.tolist() == bins


def test_noise_offsets_count_twice_against_capacity(std: SlotProfile) -> None:
    noise = NoiseOffsets(bin=120, unfilled=1_358)
    assert std.capacity(H, noise) == min((2**47 - 1 - 240) // H, (2**47 - 1 - 2 * 1_358) // H)


def test_capacity_of_an_empty_histogram_is_refused(std: SlotProfile) -> None:
    with pytest.raises(ConfigError, match="holds nothing"):
        std.capacity(0)


def test_sum_of_honest_reports_passes(draw_report: Callable[[int], Slots]) -> None:
    reports = [draw_report(seed) for seed in range(30)]
    total = slots_of(
        sum(report.bins for report in reports).tolist(),  # type: ignore[union-attr]
        sum(report.unfilled for report in reports),
        sum(report.real_reports for report in reports),
    )
    check_sum(total, weight=30, samples_per_histogram=H)
    with pytest.raises(SumRuleError, match=r"bins \+ unfilled = 300000, expected 310000"):
        check_sum(total, weight=31, samples_per_histogram=H)


def test_every_broken_rule_is_named() -> None:
    with pytest.raises(SumRuleError) as caught:
        check_sum(slots_of([20_001, *[0] * 127], 0, 3), weight=2, samples_per_histogram=H)
    message = str(caught.value)
    assert "bins + unfilled = 20001, expected 20000" in message
    assert "real_reports = 3, expected 0 to 2" in message
    assert "bin 0 = 20001, expected 0 to 20000" in message


def test_noise_moves_the_sum_rule_by_its_offsets() -> None:
    noise = NoiseOffsets(bin=10, unfilled=113)
    bins = [10] * BINS
    bins[3] += H - 7
    slots = slots_of(bins, unfilled=113 + 7, real_reports=1)
    check_sum(slots, weight=1, samples_per_histogram=H, noise=noise)
    with pytest.raises(SumRuleError, match="expected 10000"):
        check_sum(slots, weight=1, samples_per_histogram=H)
