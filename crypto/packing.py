"""Slots: how 128 bins and two check values share a few plaintexts, and how many reports one sum may hold.

The argument that no slot can overflow silently is in PACKING.md.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import gmpy2
import numpy as np

from penrose_ray.errors import CapacityError, ConfigError, SumRuleError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

BINS: Final = 128
CHECKS: Final = 2
"""Check slots of a report: `unfilled` and `real_reports`."""


@dataclass(frozen=True, slots=True)
class NoiseOffsets:
    """What a release with noise adds to every bin slot and to `unfilled`, so that no slot goes negative."""

    bin: int = 0
    unfilled: int = 0


NO_NOISE: Final = NoiseOffsets()


@dataclass(frozen=True, slots=True)
class SlotProfile:
    """How a histogram is laid out over ciphertexts; part of the task."""

    name: str
    modulus_bits: int
    ciphertexts: int
    slot_bits: int
    check_slots: bool = True
    sealed: bool = True
    """False for a simulation: the packed slots themselves, in whole 64-bit words, in place of ciphertexts."""

    @property
    def ciphertext_bytes(self) -> int:
        """Width of one ciphertext: a number below n squared."""
        return self.modulus_bits // 4 if self.sealed else self.plaintext_bytes

    @property
    def plaintext_bytes(self) -> int:
        """Width of the packed slots of one ciphertext: whole 64-bit words."""
        return -(-self.slots_per_ciphertext * self.slot_bits // 64) * 8

    @property
    def blob_bytes(self) -> int:
        """Width of one sealed histogram."""
        return self.ciphertexts * self.ciphertext_bytes

    @property
    def bins_per_ciphertext(self) -> int:
        """Bin slots of one plaintext."""
        return BINS // self.ciphertexts

    @property
    def checks_per_ciphertext(self) -> int:
        """Check slots of one plaintext."""
        return CHECKS // self.ciphertexts if self.check_slots else 0

    @property
    def slots_per_ciphertext(self) -> int:
        """All slots of one plaintext."""
        return self.bins_per_ciphertext + self.checks_per_ciphertext

    @property
    def slot_max(self) -> int:
        """Largest value that a slot holds."""
        return (1 << self.slot_bits) - 1

    def capacity(self, samples_per_histogram: int, noise: NoiseOffsets = NO_NOISE) -> int:
        """Most reports that one sum may hold without slot overflow, noise at twice its offset included."""
        if samples_per_histogram < 1:
            raise ConfigError(
                f"A histogram of {samples_per_histogram} samples holds nothing.",
                remedy="Set samples_per_histogram to 1 or more.",
            )
        offset = max(noise.bin, noise.unfilled)
        return max(0, (self.slot_max - 2 * offset) // samples_per_histogram)


_PROFILES: Final = {
    profile.name: profile
    for profile in (
        SlotProfile("std3072", modulus_bits=3072, ciphertexts=2, slot_bits=47),
        SlotProfile("std2048", modulus_bits=2048, ciphertexts=2, slot_bits=31),
        SlotProfile("plain3072", modulus_bits=3072, ciphertexts=2, slot_bits=47, sealed=False),
        SlotProfile("compact3072", modulus_bits=3072, ciphertexts=1, slot_bits=23),
        SlotProfile("paper1024", modulus_bits=1024, ciphertexts=BINS, slot_bits=62, check_slots=False),
    )
}
DEFAULT_PROFILE: Final = _PROFILES["std3072"]


def profile(name: str, *, benchmark: bool = False) -> SlotProfile:
    """The slot profile of that name.

    `paper1024` has 80-bit security and no check slots: it is refused unless `benchmark` is set.

    Raises:
        ConfigError: no such profile, or one that only a benchmark may use.
    """
    found = _PROFILES.get(name)
    if found is None:
        near = difflib.get_close_matches(name, _PROFILES, n=1, cutoff=0.0)[0]
        raise ConfigError(
            f"There is no slot profile {name!r}.",
            remedy=f"Did you mean {near!r}? Profiles: {', '.join(_PROFILES)}.",
        )
    if not found.check_slots and not benchmark:
        raise ConfigError(
            f"The slot profile {name!r} is for benchmarks only: its 1,024-bit modulus protects nobody.",
            remedy=f"Use {DEFAULT_PROFILE.name!r}.",
        )
    return found


@dataclass(frozen=True, eq=False)
class Slots:
    """The values of one report or of a sum.

    `bins` is int64 of shape (128,). `unfilled` counts the samples missing from a full histogram;
    `real_reports` is 1 in a real report and 0 in a cover report.
    """

    bins: npt.NDArray[np.int64]
    unfilled: int
    real_reports: int

    def __post_init__(self) -> None:
        """Refuse other shapes and types before they reach a slot."""
        if self.bins.shape != (BINS,) or self.bins.dtype != np.int64:
            raise ValueError(
                f"bins must be int64 of shape ({BINS},), got {self.bins.dtype} {self.bins.shape}"
            )


def pack(slots: Slots, profile: SlotProfile) -> tuple[int, ...]:
    """Plaintexts of one report, lowest slot first: bins, then check slots.

    Raises:
        CapacityError: a value is negative or wider than a slot.
    """
    bins = slots.bins.tolist()
    checks = [int(slots.unfilled), int(slots.real_reports)]
    most, least = profile.slot_max, min(*bins, *checks)
    if least < 0 or max(bins) > most or max(checks) > (most if profile.check_slots else 0):
        raise CapacityError(
            f"A value of this report does not fit a slot of {profile.name} (0 to {most}): "
            f"bins {min(bins)} to {max(bins)}, check slots {checks}.",
            remedy="Seal histograms of at most samples_per_histogram samples.",
        )
    per, extra, bits = profile.bins_per_ciphertext, profile.checks_per_ciphertext, profile.slot_bits
    return tuple(
        [
            int(gmpy2.pack(bins[i * per : (i + 1) * per] + checks[i * extra : (i + 1) * extra], bits))
            for i in range(profile.ciphertexts)
        ]
    )


def unpack(plaintexts: Sequence[int], profile: SlotProfile) -> Slots:
    """Slots of a decrypted sum, not yet checked.

    Raises:
        SumRuleError: a plaintext is wider than its slots, which no sum of honest reports is.
    """
    if len(plaintexts) != profile.ciphertexts:
        raise ValueError(f"{profile.name} has {profile.ciphertexts} plaintexts, got {len(plaintexts)}")
    rows = [_split(plaintext, profile) for plaintext in plaintexts]
    per = profile.bins_per_ciphertext
    bins = np.array([value for row in rows for value in row[:per]], dtype=np.int64)
    unfilled, real_reports = [value for row in rows for value in row[per:]] or [0, 0]
    return Slots(bins, unfilled, real_reports)


def _split(plaintext: int, profile: SlotProfile) -> list[int]:
    values = [int(value) for value in gmpy2.unpack(plaintext, profile.slot_bits)]
    missing = profile.slots_per_ciphertext - len(values)
    if missing < 0:
        raise SumRuleError(
            f"A plaintext of {plaintext.bit_length()} bits is wider than the slots of {profile.name}.",
            remedy="Discard this release and book it: a hostile report or a wrong key made it.",
        )
    return values + [0] * missing


def check_sum(
    slots: Slots, *, weight: int, samples_per_histogram: int, noise: NoiseOffsets = NO_NOISE
) -> None:
    """Raise unless these slots can be the sum of `weight` honest reports, noise offsets included.

    Raises:
        SumRuleError: the message names every rule that is broken, with both sides.
    """
    full = samples_per_histogram * weight
    total = int(slots.bins.sum()) + slots.unfilled
    expected = full + BINS * noise.bin + noise.unfilled
    faults = []
    if total != expected:
        faults.append(f"bins + unfilled = {total}, expected {expected}")
    if not 0 <= slots.real_reports <= weight:
        faults.append(f"real_reports = {slots.real_reports}, expected 0 to {weight}")
    over = np.flatnonzero((slots.bins < 0) | (slots.bins > full + 2 * noise.bin))
    if over.size:
        faults.append(
            f"bin {over[0]} = {slots.bins[over[0]]}, expected 0 to {full + 2 * noise.bin}"
            + (f" (and {over.size - 1} more bins)" if over.size > 1 else "")
        )
    if faults:
        raise SumRuleError(
            f"This is no sum of {weight} honest reports: {'; '.join(faults)}.",
            remedy="Discard this release and book it.",
        )
