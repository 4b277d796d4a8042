"""Addition under encryption: a product of ciphertexts is the sum of their plaintexts."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import numpy as np
from gmpy2 import mpz

from penrose_ray.crypto.ciphertext import join, require_blobs, require_size, split
from penrose_ray.crypto.kernel import native
from penrose_ray.crypto.kernel.chain import Chain
from penrose_ray.crypto.validate import Validator, validate
from penrose_ray.errors import CapacityError

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from penrose_ray.crypto.kernel.chains import Chains
    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.crypto.public_key import PublicKey

__all__ = ["Accumulator", "Accumulators", "Validator", "validate"]

K = TypeVar("K", bound="Hashable")

_NATIVE_FROM: Final = 48
"""Products in one call from which the kernel pays for its own start and for reading the sum again."""


@dataclass(slots=True)
class _Sum:
    """One running sum: the product of `loose` and `chains`, ciphertext by ciphertext."""

    loose: list[mpz]
    chains: list[Chain] = field(default_factory=list)
    weight: int = 0
    noisy: bool = False


class Accumulators(Generic[K]):
    """Running sums by key, each with its public weight, the number of reports in it. For one thread.

    `capacity` is the most weight that one sum takes (`SlotProfile.capacity`). Blobs are expected to have
    passed `validate`: here only length and range are looked at. Re-randomise whatever leaves the service.
    """

    def __init__(self, public_key: PublicKey, profile: SlotProfile, *, capacity: int) -> None:
        require_size(public_key, profile)
        self._key = public_key
        self._profile = profile
        self._capacity = capacity
        self._ones = [mpz(1)] * profile.ciphertexts
        self._sums: dict[K, _Sum] = {}
        self._chains = native.chains(public_key.n_squared, profile.ciphertext_bytes)

    def keys(self) -> list[K]:
        """Keys of all sums."""
        return list(self._sums)

    def weight(self, key: K) -> int:
        """Reports in the sum of that key; 0 where there is none."""
        found = self._sums.get(key)
        return found.weight if found else 0

    def add_many(self, pairs: Sequence[tuple[K, bytes]]) -> None:
        """Add each sealed report to the sum of its key: all of them or, on an error, none.

        Raises:
            CapacityError: a sum could overflow a slot.
            CiphertextError: wrong length or range.
        """
        groups: defaultdict[K, list[int]] = defaultdict(list)
        for i, (key, _) in enumerate(pairs):
            groups[key].append(i)
        self.add_groups(groups, [blob for _, blob in pairs])

    def add_groups(self, groups: Mapping[K, Sequence[int]], blobs: Sequence[bytes]) -> None:
        """Like `add_many`, with the places of each key's reports; every report is in one group."""
        packed = require_blobs(blobs, self._key, self._profile)
        sums = [self._sums.get(key) or _Sum(self._ones) for key in groups]
        for found, members in zip(sums, groups.values(), strict=True):
            self._require_room(found.weight, len(members))
        self._sums.update(zip(groups, sums, strict=True))
        if self._chains and len(blobs) * self._profile.ciphertexts >= _NATIVE_FROM:
            self._multiply_native(self._chains, sums, list(groups.values()), packed)
        else:
            for found, members in zip(sums, groups.values(), strict=True):
                for i in members:
                    self._multiply(found, blobs[i])
        for found, members in zip(sums, groups.values(), strict=True):
            found.weight += len(members)

    def merge(self, key: K, blob: bytes, weight: int) -> None:
        """Add a partial sum of `weight` reports; raises like `add_many`."""
        require_blobs([blob], self._key, self._profile)
        if weight < 1:
            raise ValueError(f"a weight is 1 or more, got {weight}")
        found = self._sums.get(key) or _Sum(self._ones)
        self._require_room(found.weight, weight)
        self._sums[key] = found
        self._multiply(found, blob)
        found.weight += weight

    def add_noise(self, key: K, blob: bytes) -> None:
        """Add encrypted noise, once: it has no weight, its offsets are in the capacity that was given."""
        require_blobs([blob], self._key, self._profile)
        found = self._sums[key]
        if found.noisy:
            raise ValueError(f"the sum of {key} has its noise already")
        self._multiply(found, blob)
        found.noisy = True

    def to_bytes(self, key: K) -> bytes:
        """The blob of a sum. An empty sum is all ones, the zero without blinding."""
        found = self._sums.get(key) or _Sum(self._ones)
        products = found.loose
        if found.chains and self._chains:
            factors = [self._chains.product(chain) for chain in found.chains]
            products = [a * b % self._key.n_squared for a, b in zip(products, factors, strict=True)]
        return join(products, self._profile)

    def discard(self, key: K) -> None:
        """Forget a sum."""
        found = self._sums.pop(key, None)
        if found and self._chains:
            for chain in found.chains:
                self._chains.drop(chain)

    def _require_room(self, held: int, weight: int) -> None:
        if held + weight > self._capacity:
            raise CapacityError(
                f"A sum of {held} reports takes at most {self._capacity} in {self._profile.name}: "
                f"{weight} more could overflow a slot.",
                remedy="Start another sum, or use a profile with wider slots.",
            )

    def _multiply(self, found: _Sum, blob: bytes) -> None:
        factors, n2 = split(blob, self._profile), self._key.n_squared
        found.loose = [a * b % n2 for a, b in zip(found.loose, factors, strict=True)]

    def _multiply_native(
        self, chains: Chains, sums: Sequence[_Sum], members: Sequence[Sequence[int]], packed: bytes
    ) -> None:
        """One chain of factors for each sum and ciphertext of the profile."""
        per = range(self._profile.ciphertexts)
        for found in sums:
            found.chains = found.chains or [Chain() for _ in per]
        lengths = [len(places) for places in members]
        order = np.array([i for places in members for i in places])
        memory = np.frombuffer(packed, dtype=np.uint8).ctypes.data
        ciphertexts = order * len(per) + np.array(per)[:, None]
        chains.multiply(
            [found.chains[at] for at in per for found in sums],
            lengths * len(per),
            memory + ciphertexts.ravel() * self._profile.ciphertext_bytes,
        )


class Accumulator:
    """One running sum; see `Accumulators`."""

    def __init__(self, public_key: PublicKey, profile: SlotProfile, *, capacity: int) -> None:
        self._sums: Accumulators[None] = Accumulators(public_key, profile, capacity=capacity)

    @property
    def weight(self) -> int:
        """Reports in this sum."""
        return self._sums.weight(None)

    def add(self, blob: bytes, weight: int = 1) -> None:
        """Add one sealed report, or a partial sum of `weight` reports.

        Raises:
            CapacityError: the sum could overflow a slot; nothing has changed.
            CiphertextError: wrong length or range; nothing has changed.
        """
        self._sums.merge(None, blob, weight)

    def add_many(self, blobs: Iterable[bytes]) -> None:
        """Add sealed reports, all of them or, on an error, none; raises like `add`."""
        batch = list(blobs)
        if batch:
            self._sums.add_groups({None: range(len(batch))}, batch)

    def merge(self, blob: bytes, weight: int) -> None:
        """Add another accumulator's sum; raises like `add`."""
        self._sums.merge(None, blob, weight)

    def to_bytes(self) -> bytes:
        """The blob of the sum."""
        return self._sums.to_bytes(None)
