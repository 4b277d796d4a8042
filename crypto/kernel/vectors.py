"""Emitting vector code: eight 64-bit lanes, each holding one 52-bit limb of one of eight numbers."""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir

LANES: Final = 8
LIMB_BITS: Final = 52
LIMB_MASK: Final = (1 << LIMB_BITS) - 1
VECTOR_BYTES: Final = 64

I64: Final = ir.IntType(64)
VECTOR: Final = ir.VectorType(I64, LANES)
BYTES: Final = ir.VectorType(ir.IntType(8), VECTOR_BYTES)
ZERO: Final = ir.Constant(VECTOR, [0] * LANES)

Value = Any
"""An LLVM value; llvmlite has no types of its own."""


def number(value: int) -> Value:
    """A 64-bit constant."""
    return ir.Constant(I64, value)


def every_lane(value: int) -> Value:
    """A vector constant with the same value in each lane."""
    return ir.Constant(VECTOR, [value] * LANES)


class Emitter:
    """Puts instructions at the end of the current block of one function."""

    def __init__(self, function: Value) -> None:
        self._function = function
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        kind = ir.FunctionType(VECTOR, [VECTOR, VECTOR, VECTOR])
        self._low, self._high = (
            ir.Function(function.module, kind, f"llvm.x86.avx512.vpmadd52{half}.uq.512") for half in "lh"
        )

    def multiply_low(self, total: Value, x: Value, y: Value) -> Value:
        """The lower 52 bits of x y added to total, in each lane."""
        return self.builder.call(self._low, [total, x, y])

    def multiply_high(self, total: Value, x: Value, y: Value) -> Value:
        """The upper 52 bits of x y added to total, in each lane."""
        return self.builder.call(self._high, [total, x, y])

    def block(self, name: str) -> Value:
        """A new block of the function; the emitter stays where it is."""
        return self._function.append_basic_block(name)

    def loop(self, count: int | Value, name: str) -> Loop:
        """Start a loop that counts from 0; `Loop.close` ends its body."""
        return Loop(self, number(count) if isinstance(count, int) else count, name)

    def at(self, base: Value, index: int | Value) -> Value:
        """Pointer to an element behind a typed pointer."""
        return self.builder.gep(base, [number(index) if isinstance(index, int) else index])

    def load(self, base: Value, index: int | Value) -> Value:
        """An aligned vector of an array of vectors."""
        return self.builder.load(self.at(base, index), align=VECTOR_BYTES)

    def store(self, value: Value, base: Value, index: int | Value) -> None:
        """Store to an array of vectors."""
        self.builder.store(value, self.at(base, index), align=VECTOR_BYTES)

    def load_from(self, address: Value, kind: Value) -> Value:
        """An unaligned load of that type from an address given as a number."""
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=1)

    def store_to(self, value: Value, address: Value) -> None:
        """An unaligned store to an address given as a number."""
        self.builder.store(value, self.builder.inttoptr(address, value.type.as_pointer()), align=1)

    def lane(self, vector: Value, lane: int) -> Value:
        """One element of a vector."""
        return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), lane))

    def spread(self, scalar: Value) -> Value:
        """A vector with that scalar in each lane."""
        zero = ir.Constant(ir.IntType(32), 0)
        one = self.builder.insert_element(ZERO, scalar, zero)
        return self.builder.shuffle_vector(one, ZERO, ir.Constant(ir.VectorType(ir.IntType(32), LANES), None))

    def transpose(self, rows: list[Value]) -> list[Value]:
        """Columns of eight vectors of eight elements, in three rounds of pairwise exchange."""
        for stride in (4, 2, 1):
            for low in (i for i in range(LANES) if not i & stride):
                a, b = rows[low], rows[low + stride]
                first = [e if not e & stride else LANES + e - stride for e in range(LANES)]
                second = [e + stride if not e & stride else LANES + e for e in range(LANES)]
                rows[low], rows[low + stride] = self._pick(a, b, first), self._pick(a, b, second)
        return rows

    def _pick(self, a: Value, b: Value, places: list[int]) -> Value:
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), places)
        return self.builder.shuffle_vector(a, b, mask)


class Loop:
    """A counting loop whose values may be carried from one turn to the next."""

    def __init__(self, emitter: Emitter, count: Value, name: str) -> None:
        self._emitter = emitter
        self._count = count
        self._before = emitter.builder.block
        self._body, self._after = emitter.block(name), emitter.block(f"{name}.end")
        emitter.builder.branch(self._body)
        emitter.builder.position_at_end(self._body)
        self.index = self.carry(number(0))

    def carry(self, start: Value) -> Value:
        """A value that is `start` in the first turn; call before any other instruction of the body."""
        phi = self._emitter.builder.phi(start.type)
        phi.add_incoming(start, self._before)
        return phi

    def close(self, carried: list[tuple[Value, Value]]) -> None:
        """End the body: (carried value, its next value) pairs; the emitter goes on behind the loop."""
        builder = self._emitter.builder
        following = builder.add(self.index, number(1))
        for phi, value in [*carried, (self.index, following)]:
            phi.add_incoming(value, builder.block)
        builder.cbranch(builder.icmp_unsigned("<", following, self._count), self._body, self._after)
        builder.position_at_end(self._after)
