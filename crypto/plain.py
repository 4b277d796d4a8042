"""Reports without encryption, for simulated fleets: the same slots, packed, that sealing would encrypt.

Adding the packed numbers adds every slot, as multiplying ciphertexts would; nothing else differs on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from gmpy2 import mpz

from penrose_ray.crypto.ciphertext import join, split
from penrose_ray.errors import CapacityError, CiphertextError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from numpy.typing import NDArray

    from penrose_ray.crypto.packing import SlotProfile

K = TypeVar("K", bound="Hashable")

_WORD_BITS = 64


class PlainAccumulators(Generic[K]):
    """`Accumulators` of reports that are not encrypted.

    A blob is added as one number: no slot overflows up to the capacity, so nothing is carried from the part
    of one ciphertext into the next.
    """

    def __init__(self, profile: SlotProfile, *, capacity: int) -> None:
        self._profile, self._capacity = profile, capacity
        self._sums: dict[K, mpz] = {}
        self._weights: dict[K, int] = {}

    def keys(self) -> list[K]:
        """Keys of all sums."""
        return list(self._sums)

    def weight(self, key: K) -> int:
        """Reports in the sum of that key; 0 where there is none."""
        return self._weights.get(key, 0)

    def add_many(self, pairs: Sequence[tuple[K, bytes]]) -> None:
        """Add each report to the sum of its key: all of them or, on an error, none.

        Raises:
            CapacityError: a sum could overflow a slot.
            CiphertextError: wrong length.
        """
        groups: dict[K, list[int]] = {}
        for at, (key, _) in enumerate(pairs):
            groups.setdefault(key, []).append(at)
        self.add_groups(groups, [blob for _, blob in pairs])

    def add_groups(self, groups: Mapping[K, Sequence[int]], blobs: Sequence[bytes]) -> None:
        """Like `add_many`, with the places of each key's reports."""
        self._require_blobs(blobs)
        for key, places in groups.items():
            self._require_room(key, len(places))
        for key, places in groups.items():
            total = self._sums.get(key, 0)
            for at in places:
                total += mpz.from_bytes(blobs[at], "little")
            self._sums[key] = mpz(total)
            self._weights[key] = self.weight(key) + len(places)

    def merge(self, key: K, blob: bytes, weight: int) -> None:
        """Add a partial sum of `weight` reports; raises like `add_many`."""
        self._require_blobs([blob])
        self._require_room(key, weight)
        self._sums[key] = self._sums.get(key, mpz(0)) + mpz.from_bytes(blob, "little")
        self._weights[key] = self.weight(key) + weight

    def add_noise(self, key: K, blob: bytes) -> None:
        """Add noise, which has no weight."""
        self._require_blobs([blob])
        self._sums[key] += mpz.from_bytes(blob, "little")

    def to_bytes(self, key: K) -> bytes:
        """The blob of a sum."""
        return self._sums.get(key, mpz(0)).to_bytes(self._profile.blob_bytes, "little")

    def discard(self, key: K) -> None:
        """Forget a sum."""
        self._sums.pop(key, None)
        self._weights.pop(key, None)

    def _require_blobs(self, blobs: Sequence[bytes]) -> None:
        if faults := PlainValidator(self._profile).faults(blobs):
            raise next(iter(faults.values()))

    def _require_room(self, key: K, weight: int) -> None:
        if self.weight(key) + weight > self._capacity:
            raise CapacityError(
                f"A sum of {self.weight(key)} reports takes at most {self._capacity} in "
                f"{self._profile.name}: {weight} more could overflow a slot.",
                remedy="Start another sum, or use a profile with wider slots.",
            )


class PlainValidator:
    """Checks blobs of simulated reports: nobody hostile sends one, so their length is all."""

    def __init__(self, profile: SlotProfile) -> None:
        self._profile = profile

    def faults(self, blobs: Sequence[bytes]) -> dict[int, CiphertextError]:
        """Blobs, by index, of a wrong length."""
        size = self._profile.blob_bytes
        return {
            at: CiphertextError(
                f"A report of {self._profile.name} has {size} bytes, this one {len(blob)}.",
                remedy="Refuse it: the sender uses another profile.",
            )
            for at, blob in enumerate(blobs)
            if len(blob) != size
        }


class PlainEncryptor:
    """Packs like an `Encryptor` and hides nothing."""

    def __init__(self, profile: SlotProfile) -> None:
        self._profile = profile

    def encrypt(self, plaintexts: Sequence[int]) -> bytes:
        """The blob of one report."""
        return join([mpz(each) for each in plaintexts], self._profile)

    def rerandomise(self, blob: bytes) -> bytes:
        """The blob as it is."""
        return blob


def plaintexts_of(blob: bytes, profile: SlotProfile) -> tuple[int, ...]:
    """What decryption would give."""
    return tuple(int(each) for each in split(blob, profile))


def pack_many(
    counts: NDArray[np.int64], unfilled: NDArray[np.int64], real: NDArray[np.int64], profile: SlotProfile
) -> NDArray[np.uint8]:
    """Plain blobs of many reports.

    Args:
        counts: shape (n, 128).
        unfilled: samples missing from a full histogram, shape (n,).
        real: 1 in a real report, 0 in a cover report, shape (n,).
        profile: with check slots.

    Returns:
        uint8, shape (n, bytes), little-endian; each part has the profile's `plaintext_bytes`.
    """
    if not profile.check_slots:
        raise ConfigError(f"{profile.name} has no check slots.", remedy="Use another slot profile.")
    checks = np.stack((unfilled, real), axis=1)
    per, extra = profile.bins_per_ciphertext, profile.checks_per_ciphertext
    width = profile.plaintext_bytes // 8
    words = np.zeros((width * profile.ciphertexts, len(counts)), np.uint64)
    for part in range(profile.ciphertexts):
        bins = counts[:, part * per : (part + 1) * per]
        slots = np.concatenate((bins, checks[:, part * extra : (part + 1) * extra]), axis=1)
        _pack(np.ascontiguousarray(slots.T.astype(np.uint64)), words[part * width :], profile.slot_bits)
    return np.ascontiguousarray(words.T).astype("<u8").view(np.uint8)


def _pack(slots: NDArray[np.uint64], words: NDArray[np.uint64], bits: int) -> None:
    """Put slots, shape (slots, n), into words, shape (words, n), lowest first."""
    for place, values in enumerate(slots):
        word, shift = divmod(place * bits, _WORD_BITS)
        words[word] |= values << np.uint64(shift)
        if shift + bits > _WORD_BITS:
            words[word + 1] |= values >> np.uint64(_WORD_BITS - shift)
