"""The autoscaler's rule under a day of load."""

from __future__ import annotations

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.autoscaling import Day, arrivals, simulate_day

CALM = Day(bursts=(), outages=())


def test_the_day_has_its_mean_its_wave_and_its_bursts() -> None:
    assert arrivals(CALM).mean() == pytest.approx(50_000, rel=1e-3)
    assert arrivals(CALM).max() == pytest.approx(80_000, rel=1e-3)
    burst = arrivals(Day(bursts=((9.0, 0.5, 3.0),), outages=()))
    assert (burst / arrivals(CALM) > 2.9).sum() == 180


def test_a_calm_day_is_served_with_few_changes() -> None:
    table = simulate_day(CALM)
    assert table["waiting"].iloc[-1] == 0
    assert table["shards"].max() <= 5
    changes = table.loc[table["delta"] != 0, "delta"]
    assert 1 <= len(changes) <= 6
    assert not ((changes.to_numpy()[1:] * changes.to_numpy()[:-1]) < 0).sum() > 1


def test_no_report_is_lost_or_made() -> None:
    day = Day()
    table = simulate_day(day)
    arrived = table["arriving_per_s"].sum() * day.step_s
    room = np.concatenate(([day.least], table["shards"].to_numpy()[:-1])) * day.shard_per_s * day.step_s
    served = arrived - table["waiting"].iloc[-1]
    assert served <= room.sum() + 64 * day.shard_per_s * day.step_s
    assert table["waiting"].iloc[-1] == 0


def test_a_burst_and_an_outage_are_caught_up_with() -> None:
    table = simulate_day(Day())
    outage = table[(table["hour"] >= 14) & (table["hour"] < 14.5)]
    assert outage["waiting"].is_monotonic_increasing
    assert (table.loc[table["hour"].between(15, 19.9), "waiting"] == 0).all()


def test_two_changes_are_five_minutes_apart() -> None:
    table = simulate_day(Day())
    times = table.loc[table["delta"] != 0, "hour"].to_numpy() * 3600
    assert np.diff(times).min() >= 300 - 1e-6


def test_bounds_are_kept() -> None:
    table = simulate_day(Day(least=2, most=4))
    assert table["shards"].between(2, 4).all()


@pytest.mark.parametrize("changes", [{"mean_per_s": -1.0}, {"shard_per_s": 0.0}, {"step_s": 0.0}])
def test_impossible_days_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(changes))):
        arrivals(Day(**changes))  # type: ignore[arg-type]
