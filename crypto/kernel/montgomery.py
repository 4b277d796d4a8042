"""Numbers as rows, and steps over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import gmpy2
import numpy as np
from gmpy2 import mpz

from penrose_ray.crypto.kernel.program import STEP, program
from penrose_ray.crypto.kernel.vectors import LANES, LIMB_BITS, VECTOR_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Rows = npt.NDArray[np.uint64]

_STEP_LIMBS: Final = LANES
"""The number of limbs is a multiple of this and of PASS, which divides it."""


class Lanes:
    """Products of numbers in eight lanes, each modulo an odd number of its own.

    A row holds a number below twice the modulus; each product carries a factor 1 / 2^(52 limbs).
    """

    def __init__(self, moduli: Sequence[mpz], width: int) -> None:
        needed = -(-(max(modulus.bit_length() for modulus in moduli) + 2) // LIMB_BITS)
        self.limbs = -(-needed // _STEP_LIMBS) * _STEP_LIMBS
        self._program = program(self.limbs, width)
        self._constants = self.empty_rows(LANES + 1).reshape(-1, LANES)
        limb = mpz(1) << LIMB_BITS
        for lane, modulus in enumerate(moduli):
            self._constants[: self.limbs, lane] = self.row(modulus)
            self._constants[self.limbs, lane] = int(-gmpy2.invert(modulus, limb) % limb)

    def row(self, value: mpz) -> Rows:
        """Limbs of a number."""
        limbs = [int(limb) for limb in gmpy2.unpack(value, LIMB_BITS)]
        return np.array(limbs + [0] * (self.limbs - len(limbs)), dtype=np.uint64)

    def empty_rows(self, count: int) -> Rows:
        """Aligned memory for that many rows."""
        words = count * self.limbs
        raw = np.empty(words + LANES, dtype=np.uint64)
        skip = -raw.ctypes.data % VECTOR_BYTES // 8
        return raw[skip : skip + words].reshape(count, self.limbs)

    def run(self, steps: npt.NDArray[np.void]) -> None:
        """Carry out steps made by `aligned_steps`.

        The arrays behind their addresses must live until this returns; other Python threads run meanwhile.
        """
        vectors = self._program.scratch_vectors
        scratch = self.empty_rows(-(-vectors * LANES // self.limbs) + 1)
        self._program.entry(steps.ctypes.data, len(steps), self._constants.ctypes.data, scratch.ctypes.data)


class Montgomery(Lanes):
    """Products modulo one odd number; `r` is 2^(52 limbs) modulo it."""

    def __init__(self, modulus: mpz, width: int) -> None:
        super().__init__([modulus] * LANES, width)
        self.modulus = modulus
        self.r = (mpz(1) << (LIMB_BITS * self.limbs)) % modulus
        self._squares = [self.r]

    def number(self, row: Rows) -> mpz:
        """The number of a row, reduced."""
        return gmpy2.pack(row.tolist(), LIMB_BITS) % self.modulus

    def power_of_r(self, exponent: int) -> mpz:
        """A power of r, exponent >= 0; its squares are kept."""
        squares = self._squares
        while len(squares) < exponent.bit_length():
            squares = [*squares, squares[-1] ** 2 % self.modulus]
        self._squares = squares  # whole, for other threads may be here too
        power = mpz(1)
        for i, square in enumerate(squares):
            if exponent >> i & 1:
                power = power * square % self.modulus
        return power


def aligned_steps(count: int) -> npt.NDArray[np.void]:
    """Zeroed steps in memory that vectors may be loaded from."""
    raw = np.zeros(count * STEP.itemsize + VECTOR_BYTES, dtype=np.uint8)
    skip = -raw.ctypes.data % VECTOR_BYTES
    return raw[skip : skip + count * STEP.itemsize].view(STEP)
