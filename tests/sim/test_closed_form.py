from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.closed_form import hit_probability, hours_to_coverage, launches_for


def test_the_published_example() -> None:
    assert hit_probability(10_000, 100_000) == pytest.approx(0.99995462, abs=5e-9)


def test_no_launch_is_never_seen_and_every_launch_is_at_interval_one() -> None:
    assert hit_probability(10_000, 0) == 0
    assert hit_probability(1, 1) == 1
    assert hit_probability(1, 0) == 0


def test_it_agrees_with_drawing() -> None:
    rng = np.random.default_rng(5)
    trials, interval, launches = 20_000, 50, 60
    seen = (rng.random((trials, launches)) < 1 / interval).any(axis=1).mean()
    expected = hit_probability(interval, launches)
    assert abs(seen - expected) < 4 * np.sqrt(expected * (1 - expected) / trials)


@pytest.mark.parametrize("probability", [0.0, 0.5, 0.975, 0.99])
def test_launches_for_inverts_hit_probability(probability: float) -> None:
    launches = launches_for(10_000, probability)
    assert hit_probability(10_000, launches) == pytest.approx(probability, abs=1e-12)


def test_hours_fall_with_gpus_and_share() -> None:
    one = hours_to_coverage(0.99, sampling_interval=10_000, launches_per_s=100)
    assert one == pytest.approx(launches_for(10_000, 0.99) / 100 / 3600)
    assert hours_to_coverage(
        0.99, sampling_interval=10_000, launches_per_s=100, gpus=10, share=0.5
    ) == pytest.approx(one / 5)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: hit_probability(0.5, 1), "sampling_interval"),
        (lambda: hit_probability(10, -1), "launches"),
        (lambda: launches_for(10, 1.0), "probability"),
        (lambda: hours_to_coverage(0.9, sampling_interval=10, launches_per_s=0), "launches_per_s"),
        (lambda: hours_to_coverage(0.9, sampling_interval=10, launches_per_s=1, share=0), "share"),
        (lambda: hours_to_coverage(0.9, sampling_interval=10, launches_per_s=1, gpus=0), "gpus"),
    ],
)
def test_impossible_values_are_refused_by_name(call, field: str) -> None:  # noqa: ANN001 - a table of closures
    with pytest.raises(ConfigError, match=field):
        call()
