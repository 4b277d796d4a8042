"""Blobs: the fixed-width little-endian ciphertexts of one sealed histogram, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gmpy2
import numpy as np
from gmpy2 import mpz

from penrose_ray.errors import CiphertextError, WrongKeyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.crypto.packing import SlotProfile
    from penrose_ray.crypto.public_key import PublicKey


def join(ciphertexts: Sequence[mpz], profile: SlotProfile) -> bytes:
    """The blob of these ciphertexts."""
    width = profile.ciphertext_bytes
    return b"".join([c.to_bytes(width, "little") for c in ciphertexts])


def split(blob: bytes, profile: SlotProfile) -> list[mpz]:
    """The ciphertexts of a blob; their range is not checked.

    Raises:
        CiphertextError: the blob has another length.
    """
    if len(blob) != profile.blob_bytes:
        raise _wrong_length(blob, profile)
    width = profile.ciphertext_bytes
    return [mpz.from_bytes(blob[at : at + width], "little") for at in range(0, len(blob), width)]


def require_blobs(blobs: Sequence[bytes], key: PublicKey, profile: SlotProfile) -> bytes:
    """All blobs in one piece.

    Raises:
        CiphertextError: the first one whose length is wrong, or that holds 0 or a number from n squared on.
    """
    packed, size = b"".join(blobs), profile.blob_bytes
    if set(map(len, blobs)) - {size} or _out_of_range(packed, key, profile):
        raise next(iter(malformed(blobs, key, profile).values()))
    return packed


def malformed(blobs: Sequence[bytes], key: PublicKey, profile: SlotProfile) -> dict[int, CiphertextError]:
    """Blobs, by index, whose length is wrong, or that hold 0 or a number from n squared on."""
    size = profile.blob_bytes
    faults = {i: _wrong_length(blob, profile) for i, blob in enumerate(blobs) if len(blob) != size}
    kept = [i for i in range(len(blobs)) if i not in faults]
    for at in _out_of_range(b"".join([blobs[i] for i in kept]), key, profile):
        faults[kept[at]] = CiphertextError(
            "A ciphertext is outside the range from 1 to n squared.",
            remedy="Refuse it: no encryption makes it.",
        )
    return faults


def require_units(blob: bytes, profile: SlotProfile, key: PublicKey) -> list[mpz]:
    """The ciphertexts of a blob of that key.

    Raises:
        CiphertextError: wrong length or range, or outside the group.
        WrongKeyError: the key's size is not the profile's.
    """
    require_size(key, profile)
    ciphertexts = split(blob, profile)
    if not all(0 < c < key.n_squared and gmpy2.gcd(c, key.n) == 1 for c in ciphertexts):
        raise CiphertextError(
            "A ciphertext is outside the group of this key.",
            remedy="Discard the release: damaged, or hostile.",
        )
    return ciphertexts


def require_size(key: PublicKey, profile: SlotProfile) -> None:
    """Raise WrongKeyError unless the profile seals, with keys of this key's size."""
    if not profile.sealed:
        raise WrongKeyError(
            f"The profile {profile.name} seals nothing: it is for simulated reports.",
            remedy=f"Seal with a profile such as std{profile.modulus_bits}.",
        )
    if key.bits != profile.modulus_bits:
        raise WrongKeyError(
            f"The profile {profile.name} takes keys of {profile.modulus_bits} bits, not {key.bits}.",
            remedy="Use the key and the profile of the same task.",
        )


def _out_of_range(packed: bytes, key: PublicKey, profile: SlotProfile) -> list[int]:
    """Blobs that hold 0 or a number from n squared on; those whose top words leave doubt are read whole."""
    words = np.frombuffer(packed, dtype="<u8").reshape(-1, profile.ciphertexts, profile.ciphertext_bytes // 8)
    top = words[:, :, -1]
    limit = int(key.n_squared >> (8 * profile.ciphertext_bytes - 64))
    doubtful = np.flatnonzero(((top >= limit) | (top == 0)).any(axis=1)).tolist()
    return [
        at for at in doubtful if not all(0 < c < key.n_squared for c in split(words[at].tobytes(), profile))
    ]


def _wrong_length(blob: bytes, profile: SlotProfile) -> CiphertextError:
    return CiphertextError(
        f"A sealed histogram of {profile.name} has {profile.blob_bytes} bytes, this one {len(blob)}.",
        remedy="Refuse it: the sender uses another profile or protocol.",
    )
