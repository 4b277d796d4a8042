"""Reports without encryption, for simulated fleets: the same slots, packed, that sealing would encrypt.

Adding the packed numbers adds every slot, as multiplying ciphertexts would; nothing else differs on the way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.crypto.packing import Slots, unpack
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from penrose_ray.crypto.packing import SlotProfile

_WORD_BITS = 64


def plain_bytes(profile: SlotProfile) -> int:
    """Width of a plain blob: whole 64-bit words for each plaintext."""
    return profile.ciphertexts * _words(profile) * 8


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
        uint8, shape (n, `plain_bytes(profile)`), little-endian words.
    """
    if not profile.check_slots:
        raise ConfigError(f"{profile.name} has no check slots.", remedy="Use another slot profile.")
    checks = np.stack((unfilled, real), axis=1)
    per, extra = profile.bins_per_ciphertext, profile.checks_per_ciphertext
    words = np.zeros((_words(profile) * profile.ciphertexts, len(counts)), np.uint64)
    for part in range(profile.ciphertexts):
        bins = counts[:, part * per : (part + 1) * per]
        slots = np.concatenate((bins, checks[:, part * extra : (part + 1) * extra]), axis=1)
        _pack(
            np.ascontiguousarray(slots.T.astype(np.uint64)),
            words[part * _words(profile) :],
            profile.slot_bits,
        )
    return np.ascontiguousarray(words.T).astype("<u8").view(np.uint8)


def unpack_sum(blobs: NDArray[np.uint8], profile: SlotProfile) -> Slots:
    """The slots of the sum of plain blobs, shape (n, bytes)."""
    width = _words(profile) * 8
    plaintexts = [0] * profile.ciphertexts
    for blob in blobs:
        raw = blob.tobytes()
        for part in range(profile.ciphertexts):
            plaintexts[part] += int.from_bytes(raw[part * width : (part + 1) * width], "little")
    return unpack(plaintexts, profile)


def _words(profile: SlotProfile) -> int:
    return -(-profile.slots_per_ciphertext * profile.slot_bits // _WORD_BITS)


def _pack(slots: NDArray[np.uint64], words: NDArray[np.uint64], bits: int) -> None:
    """Put slots, shape (slots, n), into words, shape (words, n), lowest first."""
    for place, values in enumerate(slots):
        word, shift = divmod(place * bits, _WORD_BITS)
        words[word] |= values << np.uint64(shift)
        if shift + bits > _WORD_BITS:
            words[word + 1] |= values >> np.uint64(_WORD_BITS - shift)
