from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.errors import LedgerError
from penrose_ray.release.merkle import Proof, Tree

# The tree of the Certificate Transparency reference implementation's tests: its leaves and the roots of its
# first 1 to 8 leaves.
LEAVES = [
    bytes.fromhex(each)
    for each in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)


@pytest.mark.parametrize("count", range(1, 9))
def test_roots_are_those_of_certificate_transparency(count: int) -> None:
    assert Tree(LEAVES[:count]).root.hex() == ROOTS[count - 1]


def test_an_empty_tree_has_the_hash_of_nothing() -> None:
    assert Tree([]).root == hashlib.sha256(b"").digest()


def recursive_root(leaves: list[bytes]) -> bytes:
    """The definition of RFC 6962, section 2.1, word for word."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    left, right = recursive_root(leaves[:split]), recursive_root(leaves[split:])
    return hashlib.sha256(b"\x01" + left + right).digest()


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=40), st.data())
def test_every_leaf_has_a_proof_and_no_other_value_has(leaves: list[bytes], data: st.DataObject) -> None:
    tree = Tree(leaves)
    assert tree.root == recursive_root(leaves)
    index = data.draw(st.integers(0, len(leaves) - 1))
    proof = tree.prove(index)
    proof.check(leaves[index], tree.root)
    with pytest.raises(LedgerError):
        proof.check(leaves[index] + b"x", tree.root)
    wrong = [
        msgspec.structs.replace(proof, path=(*proof.path, bytes(32))),
        msgspec.structs.replace(proof, index=len(leaves)),
        msgspec.structs.replace(proof, index=-1),
    ]
    if proof.path:
        wrong.append(msgspec.structs.replace(proof, path=proof.path[1:]))
    for other in wrong:
        with pytest.raises(LedgerError):
            other.check(leaves[index], tree.root)


def test_an_inner_node_is_no_leaf() -> None:
    """Leaves and nodes are hashed apart, so a node's halves cannot be passed off as a report."""
    halves = b"".join(hashlib.sha256(b"\x00" + leaf).digest() for leaf in LEAVES[:2])
    upper = Tree(LEAVES[:4]).prove(0).path[1]
    with pytest.raises(LedgerError):
        Proof(index=0, size=2, path=(upper,)).check(halves, Tree(LEAVES[:4]).root)


def test_there_is_no_proof_of_a_leaf_that_is_not_there() -> None:
    with pytest.raises(IndexError):
        Tree(LEAVES).prove(8)
