"""RSA blind signatures (RFC 9474): a signer signs what it does not see.

The variant is RSABSSA-SHA384-PSS-Deterministic, the one that Privacy Pass uses for tokens (RFC 9578, section
8.2.2): messages are random already, so no prefix is needed. A signature is an ordinary RSASSA-PSS signature.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn

import gmpy2
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from gmpy2 import mpz

from penrose_ray.errors import KeyFormatError, TokenError

if TYPE_CHECKING:
    from collections.abc import Callable

EXPONENT: Final = 65537
LEAST_BITS: Final = 2048
_HASH_BYTES: Final = 48
SALT_BYTES: Final = 48


@dataclass(frozen=True, slots=True)
class Blinded:
    """A message on its way to the signer, and what only the asker knows: how to unblind the answer."""

    request: bytes
    unblind: mpz


class VerifyKey:
    """The public key (n, 65537).

    Raises:
        KeyFormatError: the modulus has under 2,048 bits, or is even.
    """

    def __init__(self, modulus: int) -> None:
        if modulus.bit_length() < LEAST_BITS or modulus % 2 == 0:
            raise KeyFormatError(
                f"A modulus of {modulus.bit_length()} bits is no token key.",
                remedy=f"Use an odd modulus of {LEAST_BITS} bits or more.",
            )
        self.modulus = mpz(modulus)
        self.size_bytes = (modulus.bit_length() + 7) // 8
        self._key = rsa.RSAPublicNumbers(EXPONENT, modulus).public_key()
        self._padding = padding.PSS(padding.MGF1(hashes.SHA384()), SALT_BYTES)

    def blind(
        self,
        message: bytes,
        *,
        salt_bytes: int = SALT_BYTES,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> Blinded:
        """Hide a message (RFC 9474, section 4.2). `random_bytes` gives the salt, then the blinding."""
        salt = random_bytes(salt_bytes) if salt_bytes else b""
        encoded = mpz.from_bytes(pss_encode(message, salt, int(self.modulus).bit_length() - 1), "big")
        if gmpy2.gcd(encoded, self.modulus) != 1:
            raise TokenError("The message shares a factor with the key.", remedy="Use another issuer.")
        while True:
            r = mpz.from_bytes(random_bytes(self.size_bytes), "big")
            if 0 < r < self.modulus and gmpy2.gcd(r, self.modulus) == 1:
                break
        hidden = encoded * gmpy2.powmod(r, EXPONENT, self.modulus) % self.modulus
        return Blinded(hidden.to_bytes(self.size_bytes, "big"), gmpy2.invert(r, self.modulus))

    def finalise(
        self, message: bytes, blinded: Blinded, answer: bytes, *, salt_bytes: int = SALT_BYTES
    ) -> bytes:
        """Unblind the signer's answer and check it (section 4.4).

        Raises:
            TokenError: the answer is not this signer's signature of the message.
        """
        if len(answer) != self.size_bytes:
            raise TokenError("The signer's answer has a wrong length.", remedy="Ask the issuer again.")
        signature = mpz.from_bytes(answer, "big") * blinded.unblind % self.modulus
        raw = signature.to_bytes(self.size_bytes, "big")
        self.verify(message, raw, salt_bytes=salt_bytes)
        return raw

    def verify(self, message: bytes, signature: bytes, *, salt_bytes: int = SALT_BYTES) -> None:
        """Check a signature.

        Raises:
            TokenError: it is not this signer's signature of the message.
        """
        scheme = self._padding
        if salt_bytes != SALT_BYTES:
            scheme = padding.PSS(padding.MGF1(hashes.SHA384()), salt_bytes)
        try:
            self._key.verify(signature, message, scheme, hashes.SHA384())
        except InvalidSignature as error:
            raise TokenError(
                "A token does not carry the issuer's signature: it is forged or of another key.",
                remedy="Ask the issuer for new tokens.",
            ) from error


class SigningKey:
    """The signer's secret.

    Raises:
        KeyFormatError: the factors give too small a modulus, or no inverse of the exponent.
    """

    def __init__(self, p: int, q: int) -> None:
        if gmpy2.gcd(EXPONENT, (p - 1) * (q - 1)) != 1 or p == q:
            raise KeyFormatError("These factors make no token key.", remedy="Make a new issuer key.")
        self.public = VerifyKey(p * q)
        self._p, self._q = mpz(p), mpz(q)
        self._p_exponent = gmpy2.invert(EXPONENT, self._p - 1)
        self._q_exponent = gmpy2.invert(EXPONENT, self._q - 1)
        self._q_inverse = gmpy2.invert(self._q, self._p)

    @classmethod
    def generate(cls, bits: int = LEAST_BITS) -> SigningKey:
        """A new key."""
        numbers = rsa.generate_private_key(EXPONENT, bits).private_numbers()
        return cls(numbers.p, numbers.q)

    def factors(self) -> tuple[int, int]:
        """The factors p and q, for the key file."""
        return int(self._p), int(self._q)

    def sign(self, request: bytes) -> bytes:
        """Sign a blinded message (section 4.3). The asker chose it, so the time tells nothing new of it.

        Raises:
            TokenError: the request is not a number below the modulus of the key's length.
        """
        modulus, size = self.public.modulus, self.public.size_bytes
        hidden = mpz.from_bytes(request, "big")
        if len(request) != size or not 0 < hidden < modulus:
            raise TokenError("This is no blinded message of this key.", remedy="Fetch the task again.")
        low = gmpy2.powmod_sec(hidden % self._q, self._q_exponent, self._q)
        high = gmpy2.powmod_sec(hidden % self._p, self._p_exponent, self._p)
        signed = low + (high - low) * self._q_inverse % self._p * self._q
        if gmpy2.powmod(signed, EXPONENT, modulus) != hidden:  # a fault here would give the factors away
            raise TokenError("The signature failed its own check.", remedy="Check the issuer's machine.")
        return signed.to_bytes(size, "big")

    def __reduce__(self) -> NoReturn:
        """Refuse: the secret leaves its process through a key file only."""
        raise TypeError("a SigningKey cannot be pickled")


def pss_encode(message: bytes, salt: bytes, bits: int) -> bytes:
    """EMSA-PSS with SHA-384 and MGF1 (RFC 8017, section 9.1.1)."""
    size = (bits + 7) // 8
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    block = bytes(size - len(salt) - _HASH_BYTES - 2) + b"\x01" + salt
    mask = _mgf1(digest, len(block))
    masked = bytearray(a ^ b for a, b in zip(block, mask, strict=True))
    masked[0] &= 0xFF >> (8 * size - bits)
    return bytes(masked) + digest + b"\xbc"


def _mgf1(seed: bytes, length: int) -> bytes:
    blocks = range(-(-length // _HASH_BYTES))
    return b"".join(hashlib.sha384(seed + i.to_bytes(4, "big")).digest() for i in blocks)[:length]
