"""Powers of one base by combs (Lim and Lee 1994), eight products at a time.

The exponent's bits are written in TEETH rows of equal length. A column of them is a digit that picks an
entry of a table; tables stand `spacing` columns apart and share their squarings. An entry is found by reading
its whole table, so neither addresses nor time tell anything about the exponent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import gmpy2
import numpy as np

from penrose_ray.crypto.kernel.montgomery import aligned_steps
from penrose_ray.crypto.kernel.program import ENTRIES, ROW, SQUARE, TABLE
from penrose_ray.crypto.kernel.vectors import LANES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from gmpy2 import mpz

    from penrose_ray.crypto.kernel.montgomery import Montgomery

TEETH: Final = ENTRIES.bit_length() - 1

_MOST_TABLE_BYTES: Final = 1_200_000
"""Tables stay in the second-level cache of the CPUs that have these instructions (1 or 2 MiB)."""


@dataclass(frozen=True)
class _Run:
    """Prepared steps for a group of exponents; only digits change. Used by one call at a time."""

    steps: npt.NDArray[np.void]
    digits: npt.NDArray[np.int64]
    """View of the steps: (spacing, tables a lane, lanes)."""
    rows: npt.NDArray[np.uint64]


class Comb:
    """Base^e modulo the field's modulus for 0 <= e < 2^exponent_bits."""

    def __init__(self, field: Montgomery, base: mpz, exponent_bits: int) -> None:
        self._field = field
        self._columns = -(-exponent_bits // TEETH)
        self._table_count = _table_count(self._columns, ENTRIES * field.limbs * 8)
        self._spacing = -(-self._columns // self._table_count)
        self._tables = self._build(base)
        self._plain = field.empty_rows(ENTRIES)
        """Table 0 without the factor r: it takes the place of one table after the last squaring."""
        inverse = gmpy2.invert(field.r, field.modulus)
        for row, entry in zip(self._plain, self._tables, strict=False):
            row[:] = field.row(field.number(entry) * inverse % field.modulus)
        self._idle: dict[int, list[_Run]] = {}

    def powers(self, exponents: Sequence[int]) -> list[mpz]:
        """One power for each exponent."""
        powers: list[mpz] = []
        for at in range(0, len(exponents), LANES):
            powers += self._group(exponents[at : at + LANES])
        return powers

    def _group(self, exponents: Sequence[int]) -> list[mpz]:
        """At most eight exponents: each gets an equal share of the lanes, a power of two."""
        size = 1 << (len(exponents) - 1).bit_length()
        idle = self._idle.setdefault(size, [])
        run = idle.pop() if idle else self._prepare(size)
        digits = self._digits([*exponents, *[0] * (size - len(exponents))])
        share = LANES // size
        # a lane multiplies by its tables, from the last column of each down to the first
        run.digits[:] = (
            digits.reshape(size, share, -1, self._spacing)
            .transpose(3, 2, 1, 0)[::-1]
            .reshape(run.digits.shape)
        )
        self._field.run(run.steps)
        powers = [self._field.number(row) for row in run.rows[: len(exponents)]]
        idle.append(run)
        return powers

    def _digits(self, exponents: Sequence[int]) -> npt.NDArray[np.uint8]:
        """Digit of each column, zero in the columns that fill up the lanes' last tables."""
        width = -(-TEETH * self._columns // 8)
        raw = np.frombuffer(b"".join([e.to_bytes(width, "little") for e in exponents]), dtype=np.uint8)
        bits = np.unpackbits(raw.reshape(len(exponents), width), axis=1, bitorder="little")
        rows = bits[:, : TEETH * self._columns].reshape(len(exponents), TEETH, self._columns)
        digits = np.zeros(
            (len(exponents), self._lane_tables(len(exponents)) * LANES // len(exponents) * self._spacing),
            dtype=np.uint8,
        )
        digits[:, : self._columns] = np.packbits(rows, axis=1, bitorder="little")[:, 0]
        return digits

    def _lane_tables(self, size: int) -> int:
        """Tables that one lane works through when `size` exponents share the lanes."""
        return -(-self._table_count * size // LANES)

    def _prepare(self, size: int) -> _Run:
        per, share, spacing = self._lane_tables(size), LANES // size, self._spacing
        halvings = share.bit_length() - 1
        steps = aligned_steps(spacing * (per + 1) + halvings)
        main = steps[: spacing * (per + 1)].reshape(spacing, per + 1)
        main["kind"][:, 0], main["kind"][:, 1:] = SQUARE, TABLE
        main["replace"][0, 1] = 1
        table = np.arange(share)[None, :, None] * per + np.arange(per)[:, None, None]
        known = np.where(table < self._table_count, table, 0)
        addresses = self._tables.ctypes.data + known * (ENTRIES * self._field.limbs * 8)
        main["by"][:, 1:] = np.broadcast_to(addresses, (per, share, size)).reshape(per, LANES)
        main["by"][-1, 1, :size] = self._plain.ctypes.data
        rows = self._field.empty_rows(LANES)
        self._combine(steps[spacing * (per + 1) - 1 :], rows, halvings)
        return _Run(steps[1:], main["digit"][:, 1:], rows)

    def _combine(self, steps: npt.NDArray[np.void], rows: npt.NDArray[np.uint64], halvings: int) -> None:
        """After the last table: multiply the upper half of the lanes into the lower, until one is left."""
        places = rows.ctypes.data + np.arange(LANES) * (self._field.limbs * 8)
        steps["store"] = places
        steps["kind"][1:] = ROW
        for i in range(halvings):
            steps["by"][1 + i] = np.roll(places, -(LANES >> (1 + i)))

    def _build(self, base: mpz) -> npt.NDArray[np.uint64]:
        """Entry d of table u: the product of base^(2^(t columns + u spacing)) over the bits t of d."""
        modulus = self._field.modulus
        squares = [base]
        for _ in range(TEETH * self._columns):
            squares.append(squares[-1] * squares[-1] % modulus)
        tables = self._field.empty_rows(self._table_count * ENTRIES)
        for table in range(self._table_count):
            entries = [self._field.r]
            for tooth in range(TEETH):
                power = squares[min(tooth * self._columns + table * self._spacing, len(squares) - 1)]
                entries += [entry * power % modulus for entry in entries]
            tables[table * ENTRIES : (table + 1) * ENTRIES] = [self._field.row(entry) for entry in entries]
        return tables


def _table_count(columns: int, table_bytes: int) -> int:
    """Tables that make the fewest steps when two exponents share the lanes."""

    def steps(tables: int) -> int:
        spacing = -(-columns // tables)
        return spacing * (-(-tables * 2 // LANES) + 1)

    return min(range(1, max(2, _MOST_TABLE_BYTES // table_bytes + 1)), key=steps)
