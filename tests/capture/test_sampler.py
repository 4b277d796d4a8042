from __future__ import annotations

import math

import numpy as np
import pytest

from penrose_ray.capture.sampler import Rotation, Sampler
from penrose_ray.clock import ManualClock
from penrose_ray.errors import ConfigError


def _sampler(seed: int, interval: int, **options: object) -> Sampler:
    return Sampler(
        interval=interval,
        rng=np.random.default_rng(seed),
        clock=ManualClock(),
        **options,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("mode", ["jitter", "paper"])
def test_every_launch_has_the_same_probability(mode: str) -> None:
    interval, launches, runs = 10, 60, 20_000
    hits = np.zeros(launches)
    for seed in range(runs):
        hits[_sampler(seed, interval, mode=mode).schedule(launches).astype(int)] += 1
    share = 1 / interval
    z = (hits - runs * share) / math.sqrt(runs * share * (1 - share))
    assert np.abs(z).max() < 4


def test_gaps_are_uniform_from_1_to_2s_minus_1() -> None:
    gaps = np.diff(_sampler(1, 50).schedule(2_000_000).astype(np.int64))
    assert gaps.min() == 1
    assert gaps.max() == 99
    counts = np.bincount(gaps, minlength=100)[1:]
    chi_squared = ((counts - counts.mean()) ** 2 / counts.mean()).sum()
    assert abs(chi_squared - 98) < 4 * math.sqrt(2 * 98)


@pytest.mark.parametrize("mode", ["jitter", "paper"])
def test_schedule_in_pieces_equals_schedule_at_once_in_rate(mode: str) -> None:
    sampler = _sampler(3, 100, mode=mode)
    pieces = np.concatenate([sampler.schedule(end) for end in range(0, 1_000_001, 777)])
    assert (np.diff(pieces.astype(np.int64)) > 0).all()
    rate = len(pieces) * 100 / 1_000_000
    assert abs(rate - 1) < 4 * 0.58 / math.sqrt(len(pieces))  # a gap's deviation is S / sqrt(3)


def test_interval_1_takes_every_launch() -> None:
    assert _sampler(0, 1).schedule(5).tolist() == [0, 1, 2, 3, 4]


def test_same_seed_draws_the_same_launches() -> None:
    assert _sampler(7, 30).schedule(5000).tolist() == _sampler(7, 30).schedule(5000).tolist()


@pytest.mark.parametrize(
    ("interval", "period", "seen"),
    [(10_000, 1000, 1), (10_000, 625, 1), (10_000, 1024, 64), (10_000, 999, 200), (10_007, 1000, 200)],
)
def test_paper_stride_sees_only_k_over_gcd_positions_of_a_step(interval: int, period: int, seen: int) -> None:
    """200 samples of a window: min(200, k / gcd(S, k)) distinct positions."""
    launches = _sampler(5, interval, mode="paper").schedule(200 * interval)
    assert len(launches) == 200
    assert len(np.unique(launches % period)) == seen == min(200, period // math.gcd(interval, period))


@pytest.mark.parametrize("period", [1000, 1024, 999, 5000])
def test_jitter_sees_as_many_positions_as_blind_chance(period: int) -> None:
    """5 k samples of a step of k launches see 1 - exp(-5) = 0.9933 of it, whatever gcd(S, k) is."""
    launches = _sampler(6, 10_000).schedule(5 * period * 10_000)
    seen = len(np.unique(launches % period)) / period
    assert abs(seen - (1 - math.exp(-5))) < 4 * math.sqrt(0.0067 / period)


@pytest.mark.parametrize(
    ("interval", "period", "mode", "windows"),
    [
        (10_000, 1000, "paper", 4603),
        (10_000, 500, "paper", 2300),
        (10_000, 5000, "paper", 23_024),
        (10_000, 625, "paper", 2876),
        (10_000, 1024, "paper", 71),
        (10_000, 999, "paper", 21),
        (10_007, 1000, "paper", 21),
        (10_000, 1000, "jitter", 23),
        (10_000, 500, "jitter", 12),
        (10_000, 5000, "jitter", 115),
        (10_000, 625, "jitter", 14),
        (10_000, 1024, "jitter", 24),
        (10_000, 999, "jitter", 23),
        (10_007, 1000, "jitter", 23),
    ],
)
def test_windows_until_99_percent_of_a_step_are_seen(
    interval: int, period: int, mode: str, windows: int
) -> None:
    """The table of docs/coverage.md: 200 samples a window, and in `paper` mode an offset of its own each."""
    runs = 40 if windows < 200 else 3
    covered = np.array([_covered(seed, interval, period, mode, windows) for seed in range(runs)])
    before, after = covered.mean(axis=0)
    # single positions are seen independently of one another; whole arcs vary as their runs show
    deviation = max(math.sqrt(0.01 * 0.99 / period), covered[:, 1].std() if runs > 10 else 0)
    assert before < 0.99 + 4 * deviation / math.sqrt(runs)
    assert after > 0.99 - 4 * deviation / math.sqrt(runs)


def _covered(seed: int, interval: int, period: int, mode: str, windows: int) -> tuple[float, float]:
    """Share of a step's positions that is seen before and after the last one of these windows."""
    clock = ManualClock()
    sampler = Sampler(interval=interval, mode=mode, rng=np.random.default_rng(seed), clock=clock)  # type: ignore[arg-type]
    seen = np.zeros(period, dtype=np.bool_)
    before = 0.0
    for window in range(1, windows + 1):
        before = float(seen.mean())
        seen[sampler.schedule(window * 200 * interval) % period] = True
        clock.advance(600)
    return before, float(seen.mean())


def test_paper_offset_changes_after_the_reset_time_only() -> None:
    clock = ManualClock()
    sampler = Sampler(
        interval=1000, mode="paper", offset_reset_s=600, rng=np.random.default_rng(2), clock=clock
    )
    first = sampler.schedule(100_000) % 1000
    clock.advance(599)
    same = sampler.schedule(200_000) % 1000
    clock.advance(1)
    other = sampler.schedule(300_000) % 1000
    assert len(np.unique(first)) == len(np.unique(other)) == 1
    assert same[0] == first[0]
    assert other[0] != first[0]


def test_resets_do_not_change_the_rate() -> None:
    clock = ManualClock()
    sampler = Sampler(interval=100, mode="paper", offset_reset_s=1, rng=np.random.default_rng(4), clock=clock)
    taken = 0
    for end in range(0, 3_000_001, 250):
        taken += len(sampler.schedule(end))
        clock.advance(1)
    assert abs(taken * 100 / 3_000_000 - 1) < 4 * 0.5 / math.sqrt(12_000 * 2.5)


def test_an_interval_below_1_is_refused() -> None:
    with pytest.raises(ConfigError, match="it is 1 or more"):
        _sampler(0, 0)


def test_groups_take_turns_by_wall_time() -> None:
    clock = ManualClock(start_s=7200)
    rotation = Rotation([("a",), ("b", "c"), ("d",)], rotation_s=3600, clock=clock, phase=0)
    seen = []
    for _ in range(4):
        seen.append(rotation.current())
        clock.advance(3600)
    assert seen == [("d",), ("a",), ("b", "c"), ("d",)]
    assert Rotation([("a",), ("b",)], rotation_s=60, clock=ManualClock(0), phase=1).current() == ("b",)
