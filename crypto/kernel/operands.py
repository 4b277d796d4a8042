"""Emitting the way of eight numbers into lanes and back.

A row is one number as consecutive 52-bit limbs in 64-bit words. A packed number is little-endian bytes, as in
a blob. Lanes are the transposed form that products work on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llvmlite import ir

from penrose_ray.crypto.kernel.vectors import (
    BYTES,
    LANES,
    LIMB_BITS,
    LIMB_MASK,
    VECTOR,
    VECTOR_BYTES,
    ZERO,
    every_lane,
    number,
)

if TYPE_CHECKING:
    from penrose_ray.crypto.kernel.vectors import Emitter, Loop, Value

_BLOCK_BYTES = LANES * LIMB_BITS // 8
"""Eight limbs are 52 bytes of a packed number."""


def emit_load_rows(e: Emitter, limbs: int, addresses: Value, lanes: Value, keep: Value | None = None) -> None:
    """Load eight rows into lanes; where the mask `keep` is set, a lane stays as it is."""
    starts = [e.lane(addresses, lane) for lane in range(LANES)]
    block = e.loop(limbs // LANES, "load.rows")
    offset = e.builder.mul(block.index, number(VECTOR_BYTES))
    rows = [e.load_from(e.builder.add(start, offset), VECTOR) for start in starts]
    place = e.at(lanes, _places(e, block))
    for i, column in enumerate(e.transpose(rows)):
        e.store(column if keep is None else e.builder.select(keep, e.load(place, i), column), place, i)
    block.close([])


def emit_store_rows(e: Emitter, limbs: int, addresses: Value, lanes: Value) -> None:
    """Store lanes as eight rows."""
    starts = [e.lane(addresses, lane) for lane in range(LANES)]
    block = e.loop(limbs // LANES, "store.rows")
    place = e.at(lanes, _places(e, block))
    rows = e.transpose([e.load(place, i) for i in range(LANES)])
    offset = e.builder.mul(block.index, number(VECTOR_BYTES))
    for start, row in zip(starts, rows, strict=True):
        e.store_to(row, e.builder.add(start, offset))
    block.close([])


def emit_load_packed(e: Emitter, limbs: int, width: int, addresses: Value, lanes: Value) -> None:
    """Load eight packed numbers of `width` >= 64 bytes into lanes; nothing beyond their ends is read."""
    starts = [e.lane(addresses, lane) for lane in range(LANES)]
    whole = (width - VECTOR_BYTES) // _BLOCK_BYTES + 1
    loop = e.loop(whole, "load.packed")
    _packed_block(
        e, starts, e.builder.mul(loop.index, number(_BLOCK_BYTES)), 0, e.at(lanes, _places(e, loop))
    )
    loop.close([])
    for block in range(whole, limbs // LANES):
        skip = block * _BLOCK_BYTES - (width - VECTOR_BYTES)
        _packed_block(e, starts, number(width - VECTOR_BYTES), skip, e.at(lanes, block * LANES))


def _packed_block(e: Emitter, starts: list[Value], offset: Value, skip: int, place: Value) -> None:
    """Eight limbs of each lane: those of the 64 bytes at `offset`, from byte `skip` on."""
    raw = [e.load_from(e.builder.add(start, offset), BYTES) for start in starts]
    for i, column in enumerate(e.transpose([_limbs_of_bytes(e, row, skip) for row in raw])):
        e.store(column, place, i)


def _places(e: Emitter, block: Loop) -> Value:
    """Index of the first vector of a block."""
    return e.builder.mul(block.index, number(LANES))


def _limbs_of_bytes(e: Emitter, raw: Value, skip: int) -> Value:
    """Eight limbs from 52 of 64 bytes, from byte `skip` on: each is 6.5 bytes, so every other one shifts."""
    places = []
    for limb in range(LANES):
        first = skip + limb * LIMB_BITS // 8
        places += [min(byte, VECTOR_BYTES) for byte in range(first, first + 8)]
    mask = ir.Constant(ir.VectorType(ir.IntType(32), VECTOR_BYTES), places)
    words = e.builder.shuffle_vector(raw, ir.Constant(BYTES, [0] * VECTOR_BYTES), mask)
    shifts = ir.Constant(VECTOR, [limb * LIMB_BITS % 8 for limb in range(LANES)])
    shifted = e.builder.lshr(e.builder.bitcast(words, VECTOR), shifts)
    return e.builder.and_(shifted, every_lane(LIMB_MASK))


def emit_select_rows(
    e: Emitter, limbs: int, entries: int, tables: Value, digits: Value, chosen: Value
) -> None:
    """Copy entry `digit` of each lane's table of rows to row `lane` of `chosen`.

    Every entry is read, whatever the digit, and masked by arithmetic: addresses and time tell nothing of it.
    `tables` and `digits` point to eight words, `chosen` to eight rows.
    """
    blocks = limbs // LANES
    lane = e.loop(LANES, "lane")
    table, digit = (e.builder.load(e.at(words, lane.index)) for words in (tables, digits))
    entry = e.loop(entries, "entry")
    found = [entry.carry(ZERO) for _ in range(blocks)]
    differs = e.builder.xor(entry.index, digit)
    same = e.spread(e.builder.ashr(e.builder.sub(differs, number(1)), number(63)))
    start = e.builder.add(table, e.builder.mul(entry.index, number(limbs * 8)))
    following = []
    for block, value in enumerate(found):
        row = e.load_from(e.builder.add(start, number(block * VECTOR_BYTES)), VECTOR)
        following.append(e.builder.or_(value, e.builder.and_(row, same)))
    entry.close(list(zip(found, following, strict=True)))
    out = e.builder.add(
        e.builder.ptrtoint(chosen, lane.index.type), e.builder.mul(lane.index, number(limbs * 8))
    )
    for block, value in enumerate(following):
        e.store_to(value, e.builder.add(out, number(block * VECTOR_BYTES)))
    lane.close([])
