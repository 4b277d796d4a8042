"""One party's secret share of a threshold key, and its file."""

from __future__ import annotations

import secrets
import struct
from typing import TYPE_CHECKING, Final, NoReturn

import gmpy2
from gmpy2 import mpz

from penrose_ray.crypto.ciphertext import require_units
from penrose_ray.crypto.secretfile import KEY_SHARE, body_of, read_secret, write_secret
from penrose_ray.crypto.threshold import CHALLENGE_BYTES, Partial, ThresholdKey
from penrose_ray.errors import KeyFormatError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.crypto.wrapping import Wrapping

_HIDING_BITS: Final = 128
"""By how much the proof's randomness is longer than what it hides."""


class KeyShare:
    """Party `index` of a threshold key.

    Raises:
        KeyFormatError: the secret does not belong to the key's verifier of that party.
    """

    def __init__(self, key: ThresholdKey, index: int, secret: int | mpz) -> None:
        n2 = key.public_key.n_squared
        if not 1 <= index <= key.parties or (
            gmpy2.powmod(key.base, key.delta * secret, n2) != key.verifiers[index - 1]
        ):
            raise KeyFormatError(
                f"This share is not that of party {index} of {key.parties}.",
                remedy="Restore it from its backup, or ask the dealer.",
            )
        self.key = key
        self.index = index
        self._secret = mpz(secret)

    def decrypt(
        self,
        blob: bytes,
        profile: SlotProfile,
        *,
        context: bytes = b"",
        randbits: Callable[[int], int] = secrets.randbits,
    ) -> Partial:
        """This party's part in decrypting a blob; `context` (such as a release id) is bound to the proof.

        Raises:
            CiphertextError: the blob is not a blob of this key.
            WrongKeyError: the key's size is not the profile's.
        """
        ciphertexts = require_units(blob, profile, self.key.public_key)
        parts = [self._part(c, context, randbits) for c in ciphertexts]
        return Partial(self.index, *(tuple(part[at] for part in parts) for at in range(3)))

    def _part(self, c: mpz, context: bytes, randbits: Callable[[int], int]) -> tuple[bytes, bytes, bytes]:
        """Value c^(2 delta s), and the proof that c^4 and the base were raised to the same delta s."""
        n2, exponent = self.key.public_key.n_squared, self.key.delta * self._secret
        width = self.key.public_key.bits // 4
        value = gmpy2.powmod(c, exponent * 2, n2)
        x, y = gmpy2.powmod(c, 4, n2), value * value % n2
        hidden = 2 * self.key.public_key.bits + self.key.delta.bit_length() + 8 * CHALLENGE_BYTES
        bits = hidden + _HIDING_BITS
        r = mpz(randbits(bits))
        commitments = gmpy2.powmod(x, r, n2), gmpy2.powmod(self.key.base, r, n2)
        challenge = self.key.challenge(self.index, (x, y, *commitments), context)
        response = r + mpz.from_bytes(challenge, "big") * exponent
        return value.to_bytes(width, "big"), challenge, response.to_bytes(-(-(bits + 1) // 8), "big")

    def __repr__(self) -> str:
        return f"KeyShare({self.index} of {self.key.parties}, {self.key.public_key!r})"

    def __reduce__(self) -> NoReturn:
        """Refuse: a share leaves its process through a share file only."""
        raise TypeError("a KeyShare cannot be pickled: write it with key_share.write_share")


def write_share(
    path: Path | str, share: KeyShare, *, passphrase: bytes | None, token: Wrapping | None = None
) -> None:
    """Write a share with its public key to a new file; see `secretfile.write_secret`."""
    key = share.key.to_bytes()
    width = share.key.public_key.bits // 4
    secret = share._secret.to_bytes(width, "big")  # noqa: SLF001 - the other half of this class
    body = struct.pack(">HI", share.index, len(key)) + key + secret
    write_secret(path, KEY_SHARE, body, passphrase=passphrase, token=token)


def read_share(
    path: Path | str, *, passphrase: bytes | None = None, token: Wrapping | None = None
) -> KeyShare:
    """Read a share file; raises like `secretfile.read_secret`."""
    body = read_secret(path, KEY_SHARE, passphrase=passphrase, token=token)
    with body_of(path):
        index, length = struct.unpack_from(">HI", body)
        start = struct.calcsize(">HI")
        key = ThresholdKey.from_bytes(body[start : start + length])
        return KeyShare(key, index, mpz.from_bytes(body[start + length :], "big"))
