"""Merkle trees over report ids (RFC 6962, section 2.1), to prove that a report is in a batch."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

import msgspec

from penrose_ray.errors import LedgerError

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEAF: Final = b"\x00"
_NODE: Final = b"\x01"


class Proof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Audit path of one leaf: the hashes beside its way to the root, lowest first."""

    index: int
    size: int
    path: tuple[bytes, ...]

    def check(self, leaf: bytes, root: bytes) -> None:
        """Raise LedgerError unless `leaf` is in the tree of that root (RFC 9162, section 2.1.3.2)."""
        found = _leaf(leaf)
        at, last = self.index, self.size - 1
        if not 0 <= at <= last:
            raise _not_in(root)
        for sibling in self.path:
            if last == 0:
                raise _not_in(root)
            if at % 2 or at == last:
                found = _node(sibling, found)
                while at % 2 == 0 and at:
                    at, last = at // 2, last // 2
            else:
                found = _node(found, sibling)
            at, last = at // 2, last // 2
        if last or found != root:
            raise _not_in(root)


class Tree:
    """A tree over leaves in their order."""

    def __init__(self, leaves: Sequence[bytes]) -> None:
        self.leaves = tuple(leaves)
        self._levels = [[_leaf(leaf) for leaf in self.leaves]]
        while len(self._levels[-1]) > 1:
            below = self._levels[-1]
            level = [_node(below[i], below[i + 1]) for i in range(0, len(below) - 1, 2)]
            self._levels.append(level + below[len(level) * 2 :])

    @property
    def root(self) -> bytes:
        """32 bytes; the SHA-256 of nothing for an empty tree."""
        top = self._levels[-1]
        return top[0] if top else hashlib.sha256().digest()

    def prove(self, index: int) -> Proof:
        """That leaf `index` is in the tree.

        Raises:
            IndexError: there is no such leaf.
        """
        if not 0 <= index < len(self.leaves):
            raise IndexError(f"there is no leaf {index} of {len(self.leaves)}")
        path, at = [], index
        for level in self._levels[:-1]:
            sibling = at ^ 1
            if sibling < len(level):  # else the node goes up as it is
                path.append(level[sibling])
            at //= 2
        return Proof(index=index, size=len(self.leaves), path=tuple(path))


def _leaf(raw: bytes) -> bytes:
    return hashlib.sha256(_LEAF + raw).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(_NODE + left + right).digest()


def _not_in(root: bytes) -> LedgerError:
    return LedgerError(
        f"The proof does not lead to the root {root.hex()[:16]}.",
        remedy="Ask for the proof again; if it fails again, the report was not counted.",
    )
