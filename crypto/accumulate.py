"""Addition under encryption: a product of ciphertexts is the sum of their plaintexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gmpy2
from gmpy2 import mpz

from penrose_ray.crypto.blinding import require_size
from penrose_ray.crypto.ciphertext import join, split
from penrose_ray.errors import CapacityError, CiphertextError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.crypto.public_key import PublicKey


class Accumulator:
    """A running sum with its public weight, the number of reports in it.

    `capacity` is the most weight it takes (`SlotProfile.capacity`). Blobs are expected to have passed
    `validate`: here only length and range are looked at. An empty sum exports as ones, the unblinded zero;
    re-randomise whatever leaves the service.
    """

    def __init__(self, public_key: PublicKey, profile: SlotProfile, *, capacity: int) -> None:
        require_size(public_key, profile)
        self._n_squared = public_key.n_squared
        self._profile = profile
        self._capacity = capacity
        self._products = [mpz(1)] * profile.ciphertexts
        self._weight = 0

    @property
    def weight(self) -> int:
        """Reports in this sum."""
        return self._weight

    def add(self, blob: bytes, weight: int = 1) -> None:
        """Add one sealed report, or a partial sum of `weight` reports.

        Raises:
            CapacityError: the sum could overflow a slot; nothing has changed.
            CiphertextError: wrong length or range; nothing has changed.
        """
        self._require_room(weight)
        self._multiply([self._factors(blob)])
        self._weight += weight

    def add_many(self, blobs: Iterable[bytes]) -> None:
        """Add sealed reports, all of them or, on an error, none; raises like `add`."""
        rows = [self._factors(blob) for blob in blobs]
        if rows:
            self._require_room(len(rows))
            self._multiply(rows)
            self._weight += len(rows)

    def merge(self, blob: bytes, weight: int) -> None:
        """Add another accumulator's sum; raises like `add`."""
        self.add(blob, weight)

    def to_bytes(self) -> bytes:
        """The blob of the sum."""
        return join(self._products, self._profile)

    def _require_room(self, weight: int) -> None:
        if weight < 1:
            raise ValueError(f"a weight is 1 or more, got {weight}")
        if self._weight + weight > self._capacity:
            raise CapacityError(
                f"A sum of {self._weight} reports takes at most {self._capacity} in {self._profile.name}, "
                f"so {weight} more could overflow a slot.",
                remedy="Start another sum, or use a profile with wider slots.",
            )

    def _factors(self, blob: bytes) -> list[mpz]:
        factors = split(blob, self._profile)
        for c in factors:
            if not 0 < c < self._n_squared:
                raise _out_of_range()
        return factors

    def _multiply(self, rows: list[list[mpz]]) -> None:
        n2 = self._n_squared
        for at in range(self._profile.ciphertexts):
            product = self._products[at]
            for row in rows:
                product = product * row[at] % n2
            self._products[at] = product


def validate(
    public_key: PublicKey, profile: SlotProfile, blobs: Sequence[bytes]
) -> dict[int, CiphertextError]:
    """What is wrong with which of these blobs: length, range, or a factor in common with n.

    A product is coprime to n exactly when every factor is, so an honest batch costs one gcd.
    """
    require_size(public_key, profile)
    faults: dict[int, CiphertextError] = {}
    products: list[tuple[int, mpz]] = []
    for index, blob in enumerate(blobs):
        try:
            products.append((index, _unit_candidate(blob, public_key, profile)))
        except CiphertextError as error:
            faults[index] = error
    for index in _not_coprime(products, public_key.n):
        faults[index] = CiphertextError(
            "A ciphertext has a factor in common with the modulus.",
            remedy="Refuse it: it would destroy the sum.",
        )
    return faults


def _unit_candidate(blob: bytes, key: PublicKey, profile: SlotProfile) -> mpz:
    product = mpz(1)
    for c in split(blob, profile):
        if not 0 < c < key.n_squared:
            raise _out_of_range()
        product = product * c % key.n
    return product


def _not_coprime(products: Sequence[tuple[int, mpz]], n: mpz) -> list[int]:
    total = mpz(1)
    for _, product in products:
        total = total * product % n
    if gmpy2.gcd(total, n) == 1:
        return []
    if len(products) == 1:
        return [products[0][0]]
    middle = len(products) // 2
    return _not_coprime(products[:middle], n) + _not_coprime(products[middle:], n)


def _out_of_range() -> CiphertextError:
    return CiphertextError(
        "A ciphertext is outside the range from 1 to n squared.", remedy="Refuse it: no encryption makes it."
    )
