from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.analyse.intervals import wilson


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    # R. G. Newcombe, Stat. Med. 17 (1998) 857, table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_published_intervals(hits: int, trials: int, low: float, high: float) -> None:
    found = wilson(hits, trials)
    assert float(found[0]) == pytest.approx(low, abs=5e-5)
    assert float(found[1]) == pytest.approx(high, abs=5e-5)


def test_no_sample_has_no_interval() -> None:
    low, high = wilson([0, 5], [0, 5])
    assert np.isnan([low[0], high[0]]).all()
    assert high[1] == 1.0


def test_interval_holds_the_truth_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    for share in (0.01, 0.1, 0.38):
        hits = random.binomial(2_000, share, 4_000)
        low, high = wilson(hits, 2_000)
        # the standard error of a rate of 0.95 over 4,000 draws is 0.0034
        assert np.mean((low <= share) & (share <= high)) == pytest.approx(0.95, abs=0.014)
