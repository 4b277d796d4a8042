"""Powers of one base from tables: base^(digit * 2^(width * row)) for every row and digit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gmpy2 import mpz

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH: Final = 8
"""Bits a digit: a table row then has 255 entries and an exponent digit is one byte."""


class FixedBase:
    """base^e mod modulus for 0 <= e < 2^exponent_bits by one product a byte of e.

    Table look-ups depend on e: a process that shares this core's cache may learn about them.
    """

    def __init__(self, base: mpz, modulus: mpz, exponent_bits: int) -> None:
        self._modulus = modulus
        self._digits = -(-exponent_bits // _WIDTH)
        self._rows = [_row(base, modulus)]
        for _ in range(self._digits - 1):
            top = self._rows[-1]
            self._rows.append(_row(top[-1] * top[1] % modulus, modulus))

    def powers(self, exponents: Sequence[int]) -> list[mpz]:
        """One power for each exponent."""
        return [self._power(exponent) for exponent in exponents]

    def _power(self, exponent: int) -> mpz:
        modulus = self._modulus
        result = mpz(1)
        for row, digit in zip(self._rows, exponent.to_bytes(self._digits, "little"), strict=True):
            result = result * row[digit] % modulus
        return result


def _row(base: mpz, modulus: mpz) -> list[mpz]:
    row = [mpz(1), base]
    for _ in range((1 << _WIDTH) - 2):
        row.append(row[-1] * base % modulus)
    return row
