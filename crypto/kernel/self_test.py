"""The kernel against gmpy2: every kind of step, on edge values and random ones."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import gmpy2
import numpy as np
from gmpy2 import mpz

from penrose_ray.crypto.kernel.montgomery import Montgomery, aligned_steps
from penrose_ray.crypto.kernel.program import ENTRIES, PACKED, ROW, SQUARE, TABLE
from penrose_ray.crypto.kernel.vectors import LANES, LIMB_BITS

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class _Case:
    """Eight second factors in each form, and the memory that holds them."""

    values: list[mpz]
    packed: npt.NDArray[np.uint8]
    tables: npt.NDArray[np.uint64]
    digits: npt.NDArray[np.int64]


def agrees_with_gmpy2(limbs: int, width: int) -> bool:
    """Whether one program of these sizes computes what gmpy2 computes."""
    draw = random.Random(limbs * width)  # noqa: S311 - a repeatable test
    bits = min(8 * width, LIMB_BITS * limbs - 2)
    modulus = mpz(draw.getrandbits(bits)) | (mpz(1) << (bits - 1)) | 1
    field = Montgomery(modulus, width)
    edges = [mpz(0), mpz(1), modulus - 1, modulus >> 1]
    values = [*edges, *(mpz(draw.randrange(int(modulus))) for _ in edges)]
    case = _case(field, values[::-1], width, draw)
    inverse = gmpy2.invert(field.r, modulus)
    for kind in (SQUARE, PACKED, ROW, TABLE):
        by = values if kind == SQUARE else case.values
        expected = [a * b * inverse % modulus for a, b in zip(values, by, strict=True)]
        if _products(field, values, case, kind) != expected:
            return False
    return True


def _case(field: Montgomery, values: list[mpz], width: int, draw: random.Random) -> _Case:
    packed = np.frombuffer(b"".join([value.to_bytes(width, "little") for value in values]), dtype=np.uint8)
    digits = np.array([draw.randrange(ENTRIES) for _ in values])
    tables = field.empty_rows(ENTRIES * LANES)
    tables[:] = np.arange(len(tables), dtype=np.uint64)[:, None]
    tables[np.arange(LANES) * ENTRIES + digits] = [field.row(value) for value in values]
    return _Case(values, packed, tables, digits)


def _products(field: Montgomery, values: list[mpz], case: _Case, kind: int) -> list[mpz]:
    rows = field.empty_rows(2 * LANES)
    rows[:LANES] = [field.row(value) for value in values]
    stride, lanes = field.limbs * 8, np.arange(LANES)
    tables = case.tables.ctypes.data + lanes * ENTRIES * stride
    steps = aligned_steps(1)
    steps["kind"] = kind
    steps["by"] = {
        SQUARE: lanes * 0,
        PACKED: case.packed.ctypes.data + lanes * (len(case.packed) // LANES),
        ROW: tables + case.digits * stride,
        TABLE: tables,
    }[kind]
    steps["digit"] = case.digits
    steps["load"] = rows.ctypes.data + lanes * stride
    steps["store"] = rows.ctypes.data + (LANES + lanes) * stride
    field.run(steps)
    return [field.number(row) for row in rows[LANES:]]
