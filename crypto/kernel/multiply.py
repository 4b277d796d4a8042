"""Emitting the Montgomery product of eight pairs of numbers in radix 2^52.

Almost-Montgomery: with R = 2^(52 limbs) > 4 m and factors below 2 m the result is below 2 m, so nothing is
ever subtracted. Four limbs of the second factor go through the first one together (a pass), which keeps the
two multiply-add ports busy; the four quotients of the next pass are computed in the middle of this one,
because each of them waits for the one before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penrose_ray.crypto.kernel.vectors import LIMB_BITS, LIMB_MASK, ZERO, every_lane, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.kernel.vectors import Emitter, Value

PASS: Final = 4
"""Limbs of the second factor in one pass; the number of limbs is a multiple, and factors are padded by it."""

_NEXT_HEAD_AT: Final = 12
"""Column after which the next pass is begun: past the columns that it reads."""


@dataclass(frozen=True)
class Product:
    """Where the numbers of one product lie, as arrays of vectors."""

    limbs: int
    factor: Value
    """First factor, and the result."""
    by: Value
    """Second factor, may be the same array."""
    modulus: Value
    inverse: Value
    """Vector of -1 / m modulo 2^52."""
    sums: Value
    """Scratch: column sums between passes."""


def emit_product(e: Emitter, product: Product) -> None:
    """Set factor to factor * by / R modulo m, lane by lane."""
    limbs = product.limbs
    for j in range(limbs):
        e.store(ZERO, product.sums, j)
    first = [ZERO] * PASS
    quotients, carry = _head(e, product, first, _pass_limbs(e, product, number(0)))
    loop = e.loop(limbs // PASS, "pass")
    carried = [loop.carry(value) for value in [*quotients, carry]]
    following = _pass(e, product, loop.index, carried[:PASS], carried[PASS])
    loop.close(list(zip(carried, following, strict=True)))
    _propagate(e, product)


def _pass(e: Emitter, product: Product, index: Value, quotients: list[Value], carry: Value) -> list[Value]:
    """Add the products of four limbs and shift down by four; quotients and carry of the next pass."""
    limbs = product.limbs
    start = e.builder.mul(index, number(PASS))
    by = _pass_limbs(e, product, start)
    a, m = _cached(e, product.factor), _cached(e, product.modulus)
    following: list[Value] = []
    for j in range(PASS, limbs + PASS):
        total = e.load(product.sums, j) if j < limbs else ZERO
        total = _column(e, limbs, j, total, [(by, a), (quotients, m)])
        if j == PASS:
            total = e.builder.add(total, carry)
        e.store(total, product.sums, j - PASS)
        if j == _NEXT_HEAD_AT:
            first = [e.load(product.sums, k) for k in range(PASS)]
            ahead = _pass_limbs(e, product, e.builder.add(start, number(PASS)))
            head, next_carry = _head(e, product, first, ahead)
            following = [*head, next_carry]
    return following


def _head(e: Emitter, product: Product, sums: list[Value], by: list[Value]) -> tuple[list[Value], Value]:
    """Quotients that clear the lowest four columns, and the carry out of them."""
    a, m = _cached(e, product.factor), _cached(e, product.modulus)
    inverse = e.load(product.inverse, 0)
    quotients: list[Value] = []
    carry = ZERO
    for j in range(PASS):
        total = _column(e, product.limbs, j, sums[j], [(by[: j + 1], a), (quotients, m)])
        total = e.builder.add(total, carry)
        quotient = e.multiply_low(ZERO, total, inverse)
        quotients.append(quotient)
        carry = e.builder.lshr(e.multiply_low(total, quotient, m(0)), every_lane(LIMB_BITS))
    return quotients, carry


def _column(
    e: Emitter, limbs: int, j: int, total: Value, factors: list[tuple[list[Value], Callable[[int], Value]]]
) -> Value:
    """Column j: lower halves of limb pairs that meet in j, upper halves of those that meet in j - 1."""
    upper = ZERO
    for scalars, number_limbs in factors:
        for k, scalar in enumerate(scalars):
            if 0 <= j - 1 - k < limbs:
                upper = e.multiply_high(upper, number_limbs(j - 1 - k), scalar)
            if 0 <= j - k < limbs:
                total = e.multiply_low(total, number_limbs(j - k), scalar)
    return e.builder.add(total, upper)


def _propagate(e: Emitter, product: Product) -> None:
    """Bring column sums back to 52 bits: the result."""
    carry = ZERO
    for j in range(product.limbs):
        total = e.builder.add(e.load(product.sums, j), carry)
        e.store(e.builder.and_(total, every_lane(LIMB_MASK)), product.factor, j)
        carry = e.builder.lshr(total, every_lane(LIMB_BITS))


def _pass_limbs(e: Emitter, product: Product, start: Value) -> list[Value]:
    return [e.load(product.by, e.builder.add(start, number(k))) for k in range(PASS)]


def _cached(e: Emitter, array: Value) -> Callable[[int], Value]:
    """Load each limb once: the compiler can't, for it must assume that stores to `sums` change it."""
    seen: dict[int, Value] = {}

    def limb(j: int) -> Value:
        if j not in seen:
            seen[j] = e.load(array, j)
        return seen[j]

    return limb
