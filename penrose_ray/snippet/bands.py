"""Locality-sensitive hashing (Indyk and Motwani 1998): which representatives are worth comparing.

Each view of a signature is cut into 12 bands of 4 values; representatives that share a whole band with a
signature are its candidates. A pair at similarity 0.85 is missed with probability (1 - 0.85^4)^12 = 1.4e-4,
at 0.9 with 2e-6. The table is two numpy arrays, 6 bytes an entry, at most half full, probed for all bands at
once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.snippet.scheme import FUNCTIONS

if TYPE_CHECKING:
    from numpy.typing import NDArray

BANDS = 12
ROWS = 4
_FIRST_SLOTS = 1 << 12
_FULL = 0.5
_MOST_PROBES = 64
"""A band that so many others fill says nothing any more: further entries are left out."""
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_TAG_BITS = np.uint64(16)
_NOBODY = np.int32(-1)


def band_keys(values: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """A key for each band of each view, uint64."""
    bands = values.reshape(-1, FUNCTIONS)[:, : BANDS * ROWS].reshape(-1, ROWS).astype(np.uint64)
    keys = np.arange(len(bands), dtype=np.uint64)
    for column in range(ROWS):
        keys = (keys ^ bands[:, column]) * _FACTOR
        keys ^= keys >> np.uint64(29)
    return keys


class BandTable:
    """Positions of representatives by band."""

    def __init__(self) -> None:
        self._clear(_FIRST_SLOTS)

    @property
    def size_bytes(self) -> int:
        """Memory of the table."""
        return self._positions.nbytes + self._tags.nbytes

    def add(self, values: NDArray[np.uint32], position: int) -> bool:
        """Enter a representative; False when the table is too full and has to be rebuilt larger."""
        keys = band_keys(values)
        if (self._entries + len(keys)) > _FULL * len(self._positions):
            return False
        slots, tags = self._split(keys)
        for slot, tag in zip(slots.tolist(), tags.tolist(), strict=True):
            for probe in range(_MOST_PROBES):
                place = (slot + probe) & self._mask
                if self._positions[place] == _NOBODY:
                    self._positions[place] = position
                    self._tags[place] = tag
                    self._entries += 1
                    break
        return True

    def grow(self) -> None:
        """Empty the table and double it."""
        self._clear(2 * len(self._positions))

    def candidates(self, values: NDArray[np.uint32]) -> NDArray[np.int32]:
        """Positions that share a band, each once, ascending; a few may share none."""
        slots, tags = self._split(band_keys(values))
        found: list[NDArray[np.int32]] = []
        for _ in range(_MOST_PROBES):
            positions = self._positions[slots]
            taken = positions >= 0
            found.append(positions[taken & (self._tags[slots] == tags)])
            if not taken.any():
                break
            slots = (slots[taken] + 1) & self._mask
            tags = tags[taken]
        return np.unique(np.concatenate(found))

    def _clear(self, slots: int) -> None:
        self._positions = np.full(slots, _NOBODY, np.int32)
        self._tags = np.zeros(slots, np.uint16)
        self._mask = slots - 1
        self._entries = 0

    def _split(self, keys: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
        slots = (keys >> _TAG_BITS).astype(np.int64) & self._mask
        return slots, keys.astype(np.uint16)
