from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.aggregate.id_index import IdIndex
from penrose_ray.types import ReportId

if TYPE_CHECKING:
    from numpy.typing import NDArray


def columns(ids: list[ReportId]) -> NDArray[np.uint8]:
    return np.frombuffer(b"".join(ids), dtype=np.uint8).reshape(-1, 32)


# few values for the first bytes and the last one: many ids share the eight bytes that runs are sorted by
alike = st.tuples(st.sampled_from([b"\x00" * 8, b"\x00" * 7 + b"\x01", b"\xff" * 8]), st.integers(0, 9))
any_id = alike.map(lambda pair: ReportId(pair[0] + b"\x00" * 23 + bytes([pair[1]]))) | st.binary(
    min_size=32, max_size=32
).map(ReportId)


@given(
    st.lists(st.tuples(st.sets(any_id, max_size=12), st.sets(any_id, max_size=6)), max_size=12),
    st.lists(any_id, max_size=20),
)
def test_it_is_a_set(groups: list[tuple[set[ReportId], set[ReportId]]], asked: list[ReportId]) -> None:
    index, model = IdIndex(), set[ReportId]()
    for group, gone in groups:
        new = sorted(group - model)
        index.add(columns(new))
        index.remove(columns(sorted(gone)))
        model = (model | group) - gone
        assert len(index) == len(model)
        assert index.known(asked) == model & set(asked)
        assert index.known(sorted(model)) == model
    assert index.first_bytes() == {id_[0] for id_ in model}


def test_runs_stay_few() -> None:
    index = IdIndex()
    for number in range(2000):
        index.add(columns([ReportId(hashlib.sha256(number.to_bytes(4, "big")).digest())]))
    assert len(index) == 2000
    assert len(index._runs) <= 11  # the logarithm of 2,000
