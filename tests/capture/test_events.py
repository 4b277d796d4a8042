from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.capture.events import EventBatch, KernelKind


def test_columns_that_are_not_given_hold_neutral_values() -> None:
    batch = EventBatch.of(3, 2, seq=[5, 6, 7], device=1)
    assert batch.seq.tolist() == [5, 6, 7]
    assert batch.device.tolist() == [1, 1, 1]
    assert batch.weight.tolist() == [1.0, 1.0, 1.0]
    assert batch.kind.tolist() == [KernelKind.KERNEL] * 3
    assert np.isnan(batch.counters).all()
    assert batch.counters.shape == (3, 2)
    assert batch.grid.shape == batch.block.shape == (3, 3)


def test_no_column_can_hold_a_pointer_argument_or_shape() -> None:
    with pytest.raises(ValueError, match="no such columns: \\['arguments'\\]"):
        EventBatch.of(1, 0, arguments=[0xDEADBEEF])


def test_take_selects_rows_by_mask_and_by_index() -> None:
    batch = EventBatch.of(4, 1, seq=range(4), counters=[[1.0], [2.0], [3.0], [4.0]])
    assert batch.take(np.array([True, False, False, True])).counters.tolist() == [[1.0], [4.0]]
    assert batch.take(np.array([2, 0])).seq.tolist() == [2, 0]


def test_concat_keeps_order_and_dtypes() -> None:
    joined = EventBatch.concat(
        [EventBatch.of(1, 1, seq=9), EventBatch.empty(1), EventBatch.of(2, 1, seq=[10, 11])]
    )
    assert joined.seq.tolist() == [9, 10, 11]
    assert joined.seq.dtype == np.uint64
    assert joined.gap.dtype == np.bool_


def test_replace_refuses_another_shape() -> None:
    with pytest.raises(ValueError, match="column seq has shape"):
        EventBatch.of(2, 0).replace(seq=[1, 2, 3])
