"""Blobs: the fixed-width little-endian ciphertexts of one sealed histogram, one after another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gmpy2 import mpz

from penrose_ray.errors import CiphertextError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penrose_ray.crypto.packing import SlotProfile


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
        raise CiphertextError(
            f"A sealed histogram of {profile.name} has {profile.blob_bytes} bytes, this one {len(blob)}.",
            remedy="Refuse it: the sender uses another profile or protocol.",
        )
    width = profile.ciphertext_bytes
    return [mpz.from_bytes(blob[at : at + width], "little") for at in range(0, len(blob), width)]
