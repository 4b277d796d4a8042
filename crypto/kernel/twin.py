"""Powers modulo two squares at once, for decryption: four numbers modulo p^2 and, beside them, modulo q^2.

Fixed windows of five bits. Each window reads a whole table and nothing branches on an exponent, so neither
addresses nor time tell anything about p and q.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import gmpy2
import numpy as np
from gmpy2 import mpz

from penrose_ray.crypto.kernel.montgomery import Lanes, aligned_steps
from penrose_ray.crypto.kernel.program import ENTRIES, ROW, SQUARE, TABLE
from penrose_ray.crypto.kernel.vectors import LANES, LIMB_BITS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

WINDOW: Final = ENTRIES.bit_length() - 1
PAIR: Final = LANES // 2
"""Numbers of one call: each takes a lane modulo p^2 and one modulo q^2."""


class TwinPower:
    """c^(p - 1) modulo p^2 and c^(q - 1) modulo q^2."""

    def __init__(self, p: mpz, q: mpz) -> None:
        self._moduli = [p * p] * PAIR + [q * q] * PAIR
        self.width = (2 * max(p.bit_length(), q.bit_length()) + 7) // 8
        self._field = Lanes(self._moduli, self.width)
        self.limbs = self._field.limbs
        self._r = [(mpz(1) << (LIMB_BITS * self._field.limbs)) % modulus for modulus in self._moduli]
        self._tables = self._field.empty_rows(LANES * ENTRIES)
        self._tables[::ENTRIES] = [self._field.row(r) for r in self._r]
        self._results = self._field.empty_rows(LANES + 1)
        self._results[LANES] = self._field.row(mpz(1))
        self._steps = self._prepare([p - 1] * PAIR + [q - 1] * PAIR)
        self._turn = threading.Lock()

    def powers(self, numbers: Sequence[mpz]) -> list[tuple[mpz, mpz]]:
        """Both powers of at most four numbers."""
        padded = [*numbers, *[mpz(1)] * (PAIR - len(numbers))] * 2
        with self._turn:
            for lane, (value, modulus, r) in enumerate(zip(padded, self._moduli, self._r, strict=True)):
                self._tables[lane * ENTRIES + 1] = self._field.row(value * r % modulus)
            self._field.run(self._steps)
            found = [
                gmpy2.pack(row.tolist(), LIMB_BITS) % modulus
                for row, modulus in zip(self._results, self._moduli, strict=False)
            ]
        return list(zip(found[:PAIR], found[PAIR:], strict=True))[: len(numbers)]

    def _prepare(self, exponents: list[mpz]) -> npt.NDArray[np.void]:
        """Fill the tables, then five squarings and a product for each window, from the highest on."""
        digits = self._digits(exponents)
        stride = self._field.limbs * 8
        lanes = np.arange(LANES)
        tables = self._tables.ctypes.data + lanes * (ENTRIES * stride)
        steps = aligned_steps(ENTRIES - 2 + 1 + (len(digits) - 1) * (WINDOW + 1) + 1)
        steps["load"][0] = tables + stride
        fill = steps[: ENTRIES - 2]
        fill["kind"], fill["by"] = ROW, tables + stride
        fill["store"] = tables + np.arange(2, ENTRIES)[:, None] * stride
        first = steps[ENTRIES - 2]
        first["kind"], first["replace"], first["by"], first["digit"] = TABLE, 1, tables, digits[0]
        windows = steps[ENTRIES - 1 : -1].reshape(-1, WINDOW + 1)
        windows["kind"][:, :WINDOW], windows["kind"][:, WINDOW] = SQUARE, TABLE
        windows["by"][:, WINDOW], windows["digit"][:, WINDOW] = tables, digits[1:]
        last = steps[-1]
        last["kind"], last["by"] = ROW, self._results.ctypes.data + LANES * stride
        last["store"] = self._results.ctypes.data + lanes * stride
        return steps

    def _digits(self, exponents: list[mpz]) -> npt.NDArray[np.int64]:
        """Windows of each lane's exponent, the highest first."""
        count = -(-max(exponent.bit_length() for exponent in exponents) // WINDOW)
        rows = [[int(digit) for digit in gmpy2.unpack(exponent, WINDOW)] for exponent in exponents]
        return np.array([row + [0] * (count - len(row)) for row in rows]).T[::-1]
