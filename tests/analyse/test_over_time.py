from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from penrose_ray.analyse.frames import open_release
from penrose_ray.analyse.over_time import trend
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import count

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from penrose_ray.histogram import CounterSet


def test_medians_per_batch_with_an_interval_that_holds_the_truth(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    random = np.random.default_rng(13)
    draws = [random.lognormal(np.log(1e5 * (1 + day)), 0.7, (2_000, 1)) for day in range(3)]
    sums = [opened(duration, count(duration, each), batch=20_000 + day) for day, each in enumerate(draws)]
    table = trend(open_release(write_release(make_task(duration), sums)), "duration")
    assert table["batch_start"].tolist() == list(pd.date_range("2024-10-04", periods=3, tz="UTC"))
    for day, row in enumerate(table.to_dict("records")):
        # the median's standard error is 1.25 sd / sqrt(n) = 2 % of it; bins are 14 % wide, interpolated
        assert row["p50_low"] < row["p50"] < row["p50_high"]
        assert row["p50"] == pytest.approx(1e5 * (1 + day), rel=0.06)
        assert row["p95"] == pytest.approx(1e5 * (1 + day) * np.exp(0.7 * 1.645), rel=0.12)


def test_interval_of_the_median_covers_it(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    duration: CounterSet,
) -> None:
    random, edge = np.random.default_rng(14), float(duration.axes[0].edges()[60])
    draws = (random.lognormal(np.log(edge), 1.0, (500, 1)) for _ in range(200))
    sums = [opened(duration, count(duration, each), batch=20_000 + day) for day, each in enumerate(draws)]
    table = trend(open_release(write_release(make_task(duration), sums)), "duration")
    covered = ((table["p50_low"] <= edge) & (table["p50_high"] >= edge)).sum()
    assert 181 <= covered <= 199  # 95 % of 200, three standard errors


def test_categories_have_no_trend(
    make_task: Callable[..., Any],
    opened: Callable[..., Any],
    write_release: Callable[..., Path],
    kinds: CounterSet,
) -> None:
    counts = np.bincount([0, 1, 1], minlength=128)
    frame = open_release(write_release(make_task(kinds), [opened(kinds, counts)]))
    with pytest.raises(ConfigError, match="has categories"):
        trend(frame, "kernel_kind")
