"""Sampling error of drawn histograms against the normal distribution."""

from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.sampling_error import error_curve


def test_more_samples_bring_more_bins_below_one_percent() -> None:
    spikes = np.zeros(128)
    spikes[::13] = 0.1
    table = error_curve(spikes, (10_000, 100_000, 1_000_000), trials=200, seed=1)
    assert table["relative"].is_monotonic_increasing
    # n p / (1 - p) = 111,111: z = 3.333, 99.91 %
    assert table["relative"].iloc[-1] == pytest.approx(0.9991, abs=0.003)
    assert table["absolute"].iloc[0] > 0.99
    assert table["weighted"].iloc[-1] == pytest.approx(table["relative"].iloc[-1])


def test_masses_that_are_no_shares_are_refused() -> None:
    with pytest.raises(ConfigError, match="masses"):
        error_curve(np.array([0.5, 0.4]), (10,))
