"""Threshold decryption after Shoup (2000) and Damgard and Jurik (2001, section 4.1), degree 1.

A dealer splits the private key into shares; any `threshold` of them decrypt together, fewer learn nothing.
Each partial decryption carries a proof that it was made with the dealt share: a wrong one is found and named.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import gmpy2
import msgspec
from gmpy2 import mpz

from penrose_ray.crypto.ciphertext import require_units
from penrose_ray.crypto.public_key import PublicKey
from penrose_ray.errors import KeyFormatError, ShareError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.crypto.packing import SlotProfile

VERSION: Final = 1
CHALLENGE_BYTES: Final = 32
_MOST_PARTIES: Final = 64


class Partial(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One party's part in decrypting one blob: for each ciphertext a value and the proof that it is right."""

    index: int
    """Number of the party, from 1."""
    values: tuple[bytes, ...]
    challenges: tuple[bytes, ...]
    responses: tuple[bytes, ...]


class _Encoded(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    version: int
    public_key: bytes
    threshold: int
    base: bytes
    verifiers: tuple[bytes, ...]


@dataclass(frozen=True)
class ThresholdKey:
    """The public side of a split key.

    `base` is a square and `verifiers[i - 1]` its power by party i's share: what proofs are checked against.
    """

    public_key: PublicKey
    threshold: int
    base: mpz
    verifiers: tuple[mpz, ...]

    @property
    def parties(self) -> int:
        """Number of shares."""
        return len(self.verifiers)

    @property
    def delta(self) -> mpz:
        """Factorial of the number of shares: it keeps interpolation in the integers."""
        return gmpy2.fac(self.parties)

    def to_bytes(self) -> bytes:
        """Versioned encoding."""
        width = self.public_key.bits // 4
        verifiers = tuple(value.to_bytes(width, "big") for value in self.verifiers)
        base = self.base.to_bytes(width, "big")
        return msgspec.msgpack.encode(
            _Encoded(VERSION, self.public_key.to_bytes(), self.threshold, base, verifiers)
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> ThresholdKey:
        """Read `to_bytes()` back.

        Raises:
            KeyFormatError: malformed, of another version, or inconsistent.
        """
        try:
            found = msgspec.msgpack.decode(raw, type=_Encoded)
        except msgspec.MsgspecError as error:
            raise _malformed(str(error)) from error
        if found.version != VERSION:
            raise _malformed(f"version {found.version}, not {VERSION}")
        if not 1 <= found.threshold <= len(found.verifiers) <= _MOST_PARTIES:
            raise _malformed(f"threshold {found.threshold} of {len(found.verifiers)}")
        key = PublicKey.from_bytes(found.public_key)
        base, *verifiers = (_unit(value, key) for value in (found.base, *found.verifiers))
        return cls(key, found.threshold, base, tuple(verifiers))

    def fault(
        self, blob: bytes, profile: SlotProfile, partial: Partial, *, context: bytes = b""
    ) -> str | None:
        """What is wrong with a partial decryption of that blob in that context; None when its proof holds.

        Raises:
            CiphertextError: the blob is not a blob of this key.
        """
        ciphertexts = require_units(blob, profile, self.public_key)
        if not 1 <= partial.index <= self.parties:
            return f"there is no party {partial.index} of {self.parties}"
        if {len(partial.values), len(partial.challenges), len(partial.responses)} != {len(ciphertexts)}:
            return f"it is not for {len(ciphertexts)} ciphertexts"
        parts = zip(ciphertexts, partial.values, partial.challenges, partial.responses, strict=True)
        if not all(self._holds(partial.index, c, (v, e, z), context) for c, v, e, z in parts):
            return "its proof does not hold"
        return None

    def combine(
        self, blob: bytes, profile: SlotProfile, partials: Sequence[Partial], *, context: bytes = b""
    ) -> tuple[int, ...]:
        """Plaintexts of a blob from these partial decryptions, of which `threshold` must be right.

        Raises:
            ShareError: too few are right; the message names each wrong one.
            CiphertextError: the blob is not a blob of this key.
        """
        faults = {p.index: self.fault(blob, profile, p, context=context) for p in partials}
        right = {p.index: p for p in partials if not faults[p.index]}
        if len(right) < self.threshold:
            wrong = "; ".join(f"party {i}: {fault}" for i, fault in faults.items() if fault)
            raise ShareError(
                f"{len(right)} right partial decryptions of {self.threshold} ({wrong or 'none is wrong'}).",
                remedy="Ask the parties that are missing or wrong to decrypt again.",
            )
        chosen = [right[i] for i in sorted(right)[: self.threshold]]
        return tuple(
            self._interpolate({p.index: mpz.from_bytes(p.values[at], "big") for p in chosen})
            for at in range(profile.ciphertexts)
        )

    def _interpolate(self, parts: dict[int, mpz]) -> int:
        """The product of parts^(2 weight) is c^(4 delta^2 d) = 1 + 4 delta^2 m n, by Lagrange at 0."""
        n, n2, product = self.public_key.n, self.public_key.n_squared, mpz(1)
        for i, part in parts.items():
            others = [j for j in parts if j != i]
            weight = self.delta * math.prod(-j for j in others) // math.prod(i - j for j in others)
            product = product * gmpy2.powmod(part, weight * 2, n2) % n2
        if product % n != 1:
            raise ShareError(
                "The shares do not fit together: too few for the dealt threshold, or of two ceremonies.",
                remedy="Use the threshold key that the dealer wrote beside the shares.",
            )
        return int(product // n * gmpy2.invert(self.delta**2 * 4, n) % n)

    def _holds(self, index: int, c: mpz, proof: tuple[bytes, bytes, bytes], context: bytes) -> bool:
        """Whether c^4 and `base` were raised to the same power (Chaum and Pedersen 1992, on squares)."""
        n2 = self.public_key.n_squared
        part, e, z = (mpz.from_bytes(raw, "big") for raw in proof)
        if not 0 < part < n2 or gmpy2.gcd(part, self.public_key.n) != 1:
            return False
        x, y = gmpy2.powmod(c, 4, n2), part * part % n2
        first = gmpy2.powmod(x, z, n2) * gmpy2.powmod(y, -e, n2) % n2
        second = gmpy2.powmod(self.base, z, n2) * gmpy2.powmod(self.verifiers[index - 1], -e, n2) % n2
        return proof[1] == self.challenge(index, (x, y, first, second), context)

    def challenge(self, index: int, values: tuple[mpz, ...], context: bytes) -> bytes:
        """The hash that takes the verifier's place: of all that the proof is about (Fiat and Shamir 1986)."""
        width = self.public_key.bits // 4
        digest = hashlib.sha256(b"penrose-ray partial decryption 1")
        digest.update(bytes.fromhex(self.public_key.fingerprint) + index.to_bytes(2, "big"))
        for value in (self.base, self.verifiers[index - 1], *values):
            digest.update(value.to_bytes(width, "big"))
        digest.update(hashlib.sha256(context).digest())
        return digest.digest()


def _unit(raw: bytes, key: PublicKey) -> mpz:
    value = mpz.from_bytes(raw, "big")
    if len(raw) != key.bits // 4 or not 0 < value < key.n_squared or gmpy2.gcd(value, key.n) != 1:
        raise _malformed("a number outside the key's group")
    return value


def _malformed(why: str) -> KeyFormatError:
    return KeyFormatError(
        f"These bytes are no threshold key: {why}.", remedy="Fetch it from the dealer again."
    )
