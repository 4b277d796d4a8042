from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penrose_ray.errors import ConfigError
from penrose_ray.histogram import (
    BINS,
    Axis,
    Counter,
    CounterSet,
    count,
    marginal,
    mean,
    quantile,
)

DURATION = Counter("duration", "ns", "opencl", "any")
DRAM = Counter("dram", "%", "cupti", "nvidia")
TENSOR = Counter("tensor", "%", "cupti", "nvidia")
LOG = Axis("log", 100.0, 1e9)
LINEAR = Axis("linear", 0.0, 126.0)
ONE = CounterSet("duration", (DURATION,), (LINEAR,))
JOINT = CounterSet("joint", (DRAM, TENSOR), (Axis("linear", 0, 100, 16), Axis("linear", 0, 100, 8)))
KINDS = CounterSet("kind", (Counter("kind", "", "opencl", "any"),), categories=("gemm", "conv", "other"))


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float64)[:, None]


def test_intervals_are_closed_on_the_left_and_open_on_the_right() -> None:
    assert ONE.bin_of(column(-1, 0, 0.999, 1, 125.5, 126, 1e300)).tolist() == [0, 1, 1, 2, 126, 127, 127]


def test_infinities_go_to_the_outer_bins() -> None:
    assert ONE.bin_of(column(-math.inf, math.inf)).tolist() == [0, 127]
    assert KINDS.bin_of(column(-math.inf, math.inf)).tolist() == [0, 2]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=50))
def test_every_measured_value_is_counted_once_and_nan_never(values: list[float]) -> None:
    for counter_set in (ONE, KINDS, CounterSet("log", (DURATION,), (LOG,))):
        counts = count(counter_set, np.array(values, np.float64).reshape(-1, 1))

        assert counts.shape == (BINS,)
        assert counts.dtype == np.int64
        assert counts.sum() == sum(not math.isnan(value) for value in values)


def test_a_joint_histogram_agrees_with_numpy_and_its_marginals() -> None:
    values = np.random.default_rng(5).uniform(-10, 110, (5_000, 2))
    values[::50, 0] = np.nan
    edges = [np.concatenate(([-np.inf], axis.edges(), [np.inf])) for axis in JOINT.axes]
    kept = values[~np.isnan(values).any(axis=1)]
    expected, _, _ = np.histogram2d(kept[:, 0], kept[:, 1], bins=edges)

    counts = count(JOINT, values)

    assert counts.reshape(16, 8).tolist() == expected.astype(int).tolist()
    assert marginal(JOINT, counts, 0).tolist() == expected.sum(axis=1).astype(int).tolist()
    assert marginal(JOINT, counts, 1).tolist() == expected.sum(axis=0).astype(int).tolist()


def test_the_marginal_of_categories_is_the_histogram() -> None:
    counts = count(KINDS, column(0, 1, 1, 2))

    assert marginal(KINDS, counts).tolist()[:4] == [1, 2, 1, 0]


@pytest.mark.parametrize("axis", [LOG, LINEAR, Axis("linear", -5.0, 5.0)])
@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.9, 0.95, 0.999])
def test_quantiles_are_within_one_bin_of_numpy(axis: Axis, share: float) -> None:
    rng = np.random.default_rng(11)
    low, high = axis.low, axis.high
    values = rng.triangular(0.05, 0.2, 0.95, 20_000)
    values = low * (high / low) ** values if axis.scale == "log" else low + (high - low) * values
    exact = float(np.quantile(values, share))
    edges = axis.edges()
    place = int(np.searchsorted(edges, exact, side="right"))

    found = quantile(axis, count(CounterSet("x", (DURATION,), (axis,)), values[:, None]), share)

    assert edges[place - 2] <= found <= edges[place + 1]


def test_quantiles_of_one_full_bin_lie_inside_it() -> None:
    counts = np.zeros(BINS, np.int64)
    counts[50] = 7

    assert quantile(LINEAR, counts, 0.0) == 49.0
    assert quantile(LINEAR, counts, 0.5) == 49.5
    assert quantile(LINEAR, counts, 1.0) == 50.0


def test_open_ended_bins_answer_with_their_bound() -> None:
    outer = np.zeros(BINS, np.int64)
    outer[[0, 127]] = 5

    assert quantile(LINEAR, outer, 0.2) == LINEAR.low
    assert quantile(LINEAR, outer, 0.9) == LINEAR.high
    assert mean(LINEAR, outer) == 63.0


def test_an_empty_histogram_has_no_mean_and_no_quantile() -> None:
    empty = np.zeros(BINS, np.int64)

    assert math.isnan(mean(LINEAR, empty))
    assert math.isnan(quantile(LINEAR, empty, 0.5))


@pytest.mark.parametrize("share", [-0.01, 1.01, math.nan])
def test_a_share_outside_0_to_1_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="a share lies between 0 and 1"):
        quantile(LINEAR, np.ones(BINS, np.int64), share)


def test_the_mean_is_within_half_a_bin_of_the_values() -> None:
    values = np.random.default_rng(3).uniform(10, 110, 10_000)

    assert mean(LINEAR, count(ONE, values[:, None])) == pytest.approx(values.mean(), abs=0.5)


def test_centres_lie_inside_their_bins() -> None:
    for axis in (LOG, LINEAR):
        centres = axis.centres()
        assert len(centres) == BINS
        assert axis.index(centres).tolist() == [1, *range(1, 127), 127]


def test_labels_say_what_each_bin_holds() -> None:
    assert JOINT.labels()[0] == "< 0 x < 0"
    assert JOINT.labels()[9] == "[0, 7.143) x [0, 16.67)"
    assert JOINT.labels()[-1] == ">= 100 x >= 100"
    assert KINDS.labels()[:4] == ("gemm", "conv", "other", "")
    assert {len(each.labels()) for each in (ONE, JOINT, KINDS)} == {BINS}
    assert DURATION.label == "duration [ns] (opencl)"


@pytest.mark.parametrize(
    ("counter_set", "reason"),
    [
        (CounterSet("s", (DURATION,)), "one or two axes"),
        (CounterSet("s", (DURATION,), (LINEAR,), ("a",)), "exclude one another"),
        (CounterSet("s", (DRAM, TENSOR), categories=("a",)), "exactly one counter"),
        (CounterSet("s", (DURATION,), categories=tuple(map(str, range(129)))), "at most 128"),
        (CounterSet("s", (DRAM, TENSOR), (LINEAR,)), "its own axis"),
        (CounterSet("s", (DURATION,), (Axis("log", 0, 10),)), "starts above 0"),
        (CounterSet("s", (DURATION,), (Axis("linear", 5, 5),)), "must be below"),
        (CounterSet("s", (DURATION,), (Axis("linear", math.nan, 5),)), "finite"),
        (CounterSet("s", (DURATION,), (Axis("linear", 0, math.inf),)), "finite"),
        (CounterSet("s", (DURATION,), (Axis("linear", 0, 1, 127),)), "multiply to 127"),
        (CounterSet("s", (DURATION,), (Axis("linear", 0, 1, 10**12),)), "multiply to"),
        (CounterSet("s", (DRAM, TENSOR), (Axis("linear", 0, 1, 64), Axis("linear", 0, 1, 2))), "3 bins"),
        (CounterSet("s", (DURATION,), (Axis("linear", 1.0, 1.0 + 1e-15),)), "too close"),
    ],
)
def test_bins_that_cannot_work_are_refused_with_the_reason(counter_set: CounterSet, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        counter_set.check()
    assert "'s'" in str(caught.value)


def test_sets_that_work_pass() -> None:
    for counter_set in (ONE, JOINT, KINDS, CounterSet("log", (DURATION,), (LOG,))):
        counter_set.check()
