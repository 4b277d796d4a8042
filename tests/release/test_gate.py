from __future__ import annotations

from decimal import Decimal, localcontext
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.errors import GateError
from penrose_ray.release.gate import least_passing, passes, real_reports_needed

if TYPE_CHECKING:
    from penrose_ray.task import Task


def change(task: Task, **fields: object) -> Task:
    return msgspec.structs.replace(task, **fields)


@pytest.fixture(scope="session")
def default(task: Task) -> Task:
    """The parameters a real task has when nothing else is said."""
    return change(
        task, demo=False, min_contributors=200, tokens_per_day=32, hostile_clients=10, cover_rate=0.1
    )


def left_side(reports: int, cover_rate: float) -> Decimal:
    """N (1 - q) - 4 sqrt(N q (1 - q)) to 50 digits."""
    with localcontext() as context:
        context.prec = 50
        n, q = Decimal(reports), Decimal(cover_rate)
        return n * (1 - q) - 4 * (n * q * (1 - q)).sqrt()


def test_the_defaults_need_611_reports(default: Task) -> None:
    # by hand: 611 * 0.9 - 4 * sqrt(611 * 0.09) = 520.24, 610 gives 519.36; r k + m c = 200 + 320 = 520
    assert real_reports_needed(default) == 520
    assert least_passing(default) == 611
    passes(default, 611)
    with pytest.raises(GateError):
        passes(default, 610)


def test_the_error_names_k_what_there_is_and_what_is_missing(default: Task) -> None:
    with pytest.raises(GateError) as raised:
        passes(default, 600)
    assert raised.value.message == (
        "This sum has 600 reports; k = 200 honest contributors need 611, so 11 are missing."
    )


def test_a_demo_without_tokens_counts_reports(task: Task) -> None:
    passes(task, 5)
    with pytest.raises(GateError, match=r"k = 5 .* so 1 are missing"):
        passes(task, 4)


def test_a_demo_with_tokens_obeys_the_full_rule(task: Task) -> None:
    assert least_passing(change(task, tokens_per_day=2, hostile_clients=3)) == 5 + 3 * 2


def test_no_bound_on_reports_per_class_counts_as_all_tokens(default: Task) -> None:
    assert real_reports_needed(change(default, reports_per_class=0)) == 32 * 200 + 10 * 32


def test_a_batch_of_three_days_sees_three_days_of_tokens(default: Task) -> None:
    assert real_reports_needed(change(default, batch_s=3 * 86_400)) == 200 + 10 * 3 * 32


@given(
    k=st.integers(50, 5_000),
    c=st.integers(1, 100),
    m=st.integers(0, 100),
    r=st.integers(1, 10),
    q=st.integers(0, 950).map(lambda thousandths: thousandths / 1000),
)
def test_the_least_passing_number_is_least(default: Task, k: int, c: int, m: int, r: int, q: float) -> None:
    task = change(
        default, min_contributors=k, tokens_per_day=c, hostile_clients=m, reports_per_class=r, cover_rate=q
    )
    least = least_passing(task)
    assert left_side(least, q) >= r * k + m * c
    assert left_side(least - 1, q) < r * k + m * c
    passes(task, least)
    with pytest.raises(GateError):
        passes(task, least - 1)
