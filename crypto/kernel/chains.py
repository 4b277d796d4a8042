"""Many running products at once: a chain of factors for each, and lanes that take whatever comes next.

A chain that is cut between two lanes goes on in a row of its own; a product is that of all its rows. Rows
start at r, and each factor costs a factor 1 / r, which is settled when the product is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from penrose_ray.crypto.kernel.montgomery import aligned_steps
from penrose_ray.crypto.kernel.program import PACKED
from penrose_ray.crypto.kernel.vectors import LANES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from gmpy2 import mpz

    from penrose_ray.crypto.kernel.chain import Chain
    from penrose_ray.crypto.kernel.montgomery import Montgomery

    Words = npt.NDArray[np.int64]

_CHUNK: Final = 16
"""Rows that are allocated together."""


class Chains:
    """Running products of packed numbers modulo one number."""

    def __init__(self, field: Montgomery) -> None:
        self._field = field
        self._one = field.row(field.r)
        self._chunks: list[npt.NDArray[np.uint64]] = []
        self._bases: list[int] = []
        self._stride = field.limbs * 8
        self._free: list[int] = []
        self._power = 1, field.r

    def multiply(self, chains: Sequence[Chain], lengths: Sequence[int], packed: Words) -> None:
        """Multiply each chain by its share of packed numbers, `lengths` of them, by their addresses in turn.

        The memory behind the addresses is read until this returns.
        """
        count = len(packed)
        turns = -(-count // LANES)
        heads = np.cumsum([0, *lengths[:-1]])
        begins = np.zeros(count, np.bool_)
        begins[heads] = begins[::turns] = True
        starts = np.flatnonzero(begins)
        rows = self._rows(chains, np.searchsorted(heads, starts, side="right") - 1)
        steps = aligned_steps(turns)
        steps["kind"] = PACKED
        steps["by"] = np.resize(packed, LANES * turns).reshape(LANES, turns).T
        ends = np.append(starts[1:], count) - 1
        for name, at in (("load", starts), ("store", ends)):
            addresses = np.zeros(LANES * turns, dtype=np.int64)
            addresses[at] = rows
            steps[name] = addresses.reshape(LANES, turns).T
        self._field.run(steps)
        for chain, length in zip(chains, lengths, strict=True):
            chain.factors += length

    def product(self, chain: Chain) -> mpz:
        """The product of all factors so far."""
        exponent, modulus = chain.factors - len(chain.rows), self._field.modulus
        if exponent != self._power[0]:  # chains of one sum have the same
            self._power = exponent, self._field.power_of_r(exponent)
        product = self._power[1]
        for row in chain.rows:
            product = product * self._field.number(self._row(row)) % modulus
        return product

    def drop(self, chain: Chain) -> None:
        """Free the memory of a product."""
        self._free += chain.rows
        chain.rows, chain.factors = [], 0

    def _rows(self, chains: Sequence[Chain], pieces: Words) -> Words:
        """Address of the row of each piece of a chain: the n-th piece in this call has the n-th row."""
        indices: list[int] = []
        before, part = -1, 0
        for piece in pieces.tolist():
            part = part + 1 if piece == before else 0
            rows = chains[piece].rows
            if part == len(rows):
                rows.append(self._new_row())
            indices.append(rows[part])
            before = piece
        chunk, at = np.divmod(np.array(indices), _CHUNK)
        addresses: Words = np.array(self._bases)[chunk] + at * self._stride
        return addresses

    def _row(self, index: int) -> npt.NDArray[np.uint64]:
        row: npt.NDArray[np.uint64] = self._chunks[index // _CHUNK][index % _CHUNK]
        return row

    def _new_row(self) -> int:
        if not self._free:
            first = len(self._chunks) * _CHUNK
            chunk = self._field.empty_rows(_CHUNK)
            self._chunks.append(chunk)
            self._bases.append(chunk.ctypes.data)
            self._free.extend(range(first + _CHUNK - 1, first - 1, -1))
        index = self._free.pop()
        self._row(index)[:] = self._one
        return index
