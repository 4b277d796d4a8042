"""Powers of one base from tables: base^(digit * 2^(width * row)) for every row and digit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import gmpy2
from gmpy2 import mpz

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHORT_BITS: Final = 600
"""Exponents up to here have digits of 9 bits, longer ones of 8: tables of 23 and 38 MB at 3,072 bits."""
_SMALL_WIDTH: Final = 4
"""A table of 5 MB, and twice the products."""


class FixedBase:
    """base^e mod modulus for 0 <= e < 2^exponent_bits by one product a digit of e.

    Table look-ups depend on e: a process that shares this core's cache may learn about them.
    """

    def __init__(self, base: mpz, modulus: mpz, exponent_bits: int, *, small: bool = False) -> None:
        self._modulus = modulus
        self._width = _SMALL_WIDTH if small else 9 if exponent_bits <= _SHORT_BITS else 8
        self._rows = [_row(base, modulus, self._width)]
        for _ in range(-(-exponent_bits // self._width) - 1):
            top = self._rows[-1]
            self._rows.append(_row(top[-1] * top[1] % modulus, modulus, self._width))

    def powers(self, exponents: Sequence[int]) -> list[mpz]:
        """One power for each exponent."""
        return [self._power(exponent) for exponent in exponents]

    def _power(self, exponent: int) -> mpz:
        modulus = self._modulus
        result = mpz(1)
        for row, digit in zip(self._rows, gmpy2.unpack(exponent, self._width), strict=False):
            result = result * row[digit] % modulus
        return result


def _row(base: mpz, modulus: mpz, width: int) -> list[mpz]:
    row = [mpz(1), base]
    for _ in range((1 << width) - 2):
        row.append(row[-1] * base % modulus)
    return row
