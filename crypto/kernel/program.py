"""The compiled program: a list of steps, each of which multiplies eight numbers of one modulus at once.

A step may load rows into some lanes first and store some lanes as rows afterwards, so each lane works through
products of its own, one after another, whatever they belong to.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir

from penrose_ray.crypto.kernel import operands
from penrose_ray.crypto.kernel.multiply import PASS, Product, emit_product
from penrose_ray.crypto.kernel.vectors import I64, LANES, VECTOR, VECTOR_BYTES, Emitter, number

if TYPE_CHECKING:
    from collections.abc import Callable

    from penrose_ray.crypto.kernel.vectors import Value

SQUARE: Final = 0
PACKED: Final = 1
ROW: Final = 2
TABLE: Final = 3
"""Kinds of second factor: the lane itself, a packed number, a row, an entry of a table of rows."""

ENTRIES: Final = 32
"""Rows of one table."""

STEP: Final = np.dtype(
    [
        ("by", "<i8", LANES),  # address of the second factor, or of its table
        ("digit", "<i8", LANES),  # entry of the table
        ("load", "<i8", LANES),  # address of a row to begin with, 0 goes on with the lane as it is
        ("store", "<i8", LANES),  # address for a copy of the result, 0 for none
        ("kind", "<i8"),
        ("replace", "<i8"),  # 1: take the second factor instead of multiplying by it
        ("unused", "<i8", LANES - 2),
    ]
)
_WORDS: Final = STEP.itemsize // 8


@dataclass(frozen=True)
class Program:
    """Entry point and the memory that it wants; `engine` keeps the code alive."""

    limbs: int
    width: int
    entry: Callable[[int, int, int, int], None]
    engine: Any

    @property
    def scratch_vectors(self) -> int:
        """Vectors of working memory, for one call at a time: lanes, second factor, sums, rows."""
        return 3 * (self.limbs + PASS) + LANES * self.limbs // LANES


@lru_cache(maxsize=8)
def program(limbs: int, width: int) -> Program:
    """Compile for numbers of that many limbs and packed numbers of that many bytes (0.1 to 0.2 s)."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    module = llvm.parse_assembly(_assembly(limbs, width))
    engine = llvm.create_mcjit_compiler(module, machine)  # owns the machine from here on
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * 4)
    return Program(limbs, width, kind(engine.get_function_address("run")), engine)


def _assembly(limbs: int, width: int) -> str:
    """Text of `run(steps, count, constants, scratch)`; constants are the modulus and its inverse vector."""
    module = ir.Module()
    pointer = VECTOR.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [I64.as_pointer(), I64, pointer, pointer])
    function = ir.Function(module, kind, "run")
    steps, count, constants, scratch = function.args
    e = Emitter(function)
    loop = e.loop(count, "step")
    step = _Step(e, limbs, width, e.at(steps, e.builder.mul(loop.index, number(_WORDS))), scratch)
    step.emit_load()
    step.emit_operand()
    with e.builder.if_else(e.builder.icmp_unsigned("!=", step.field("replace"), number(0))) as (yes, no):
        with yes:
            step.emit_replace()
        with no:
            inverse = e.at(constants, limbs)
            emit_product(e, Product(limbs, step.lanes, step.factor(), constants, inverse, step.sums))
    step.emit_store()
    loop.close([])
    e.builder.ret_void()
    return str(module)


class _Step:
    """Emits the parts of one step."""

    def __init__(self, e: Emitter, limbs: int, width: int, words: Value, scratch: Value) -> None:
        self._e = e
        self._limbs = limbs
        self._width = width
        self._words = words
        self.lanes, self._by, self.sums, rows = (e.at(scratch, i * (limbs + PASS)) for i in range(4))
        self._rows = rows
        self._spare = e.spread(e.builder.ptrtoint(rows, I64))

    def field(self, name: str) -> Value:
        """A scalar of the step."""
        return self._e.builder.load(self._word(name))

    def emit_load(self) -> None:
        """Begin with other rows where the step says so."""
        builder, addresses = self._e.builder, self._vector("load")
        none = builder.icmp_unsigned("==", addresses, ir.Constant(VECTOR, [0] * LANES))
        with builder.if_then(self._some(addresses)):
            safe = builder.select(none, self._spare, addresses)
            operands.emit_load_rows(self._e, self._limbs, safe, self.lanes, keep=none)

    def emit_operand(self) -> None:
        """Bring the second factor into lanes, unless it is there."""
        e, builder = self._e, self._e.builder
        end = e.block("operand.end")
        switch = builder.switch(self.field("kind"), end)
        for kind in (PACKED, ROW, TABLE):
            block = e.block(f"operand.{kind}")
            switch.add_case(number(kind), block)
            builder.position_at_end(block)
            self._emit_kind(kind)
            builder.branch(end)
        builder.position_at_end(end)

    def _emit_kind(self, kind: int) -> None:
        addresses = self._vector("by")
        if kind == PACKED:
            operands.emit_load_packed(self._e, self._limbs, self._width, addresses, self._by)
            return
        if kind == TABLE:
            words = self._word("by"), self._word("digit")
            operands.emit_select_rows(self._e, self._limbs, ENTRIES, *words, self._rows)
            offsets = ir.Constant(VECTOR, [lane * self._limbs * 8 for lane in range(LANES)])
            addresses = self._e.builder.add(self._spare, offsets)
        operands.emit_load_rows(self._e, self._limbs, addresses, self._by)

    def factor(self) -> Value:
        """Where the second factor lies in lanes."""
        square = self._e.builder.icmp_unsigned("==", self.field("kind"), number(SQUARE))
        return self._e.builder.select(square, self.lanes, self._by)

    def emit_replace(self) -> None:
        """The second factor becomes the lanes."""
        for j in range(self._limbs):
            self._e.store(self._e.load(self._by, j), self.lanes, j)

    def emit_store(self) -> None:
        """Copy results to rows where the step says so; other lanes go to spare memory."""
        builder, addresses = self._e.builder, self._vector("store")
        none = builder.icmp_unsigned("==", addresses, ir.Constant(VECTOR, [0] * LANES))
        with builder.if_then(self._some(addresses)):
            safe = builder.select(none, self._spare, addresses)
            operands.emit_store_rows(self._e, self._limbs, safe, self.lanes)

    def _some(self, addresses: Value) -> Value:
        """Whether any address is not 0."""
        builder = self._e.builder
        some = builder.icmp_unsigned("!=", addresses, ir.Constant(VECTOR, [0] * LANES))
        return builder.icmp_unsigned(
            "!=", builder.bitcast(some, ir.IntType(LANES)), ir.Constant(ir.IntType(LANES), 0)
        )

    def _vector(self, name: str) -> Value:
        pointer = self._e.builder.bitcast(self._word(name), VECTOR.as_pointer())
        return self._e.builder.load(pointer, align=VECTOR_BYTES)

    def _word(self, name: str) -> Value:
        return self._e.at(self._words, STEP.fields[name][1] // 8 if STEP.fields else 0)
