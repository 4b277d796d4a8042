"""Workloads and who runs them."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from penrose_ray.errors import ConfigError, TraceError
from penrose_ray.sim.hashing import Chooser, by_number, stream
from penrose_ray.sim.population import Mix, time_shares
from penrose_ray.sim.recorded import from_traces, period
from penrose_ray.sim.scenario import Sampling, Scenario
from penrose_ray.sim.workloads import Group, Workload, grouped, lognormal, repeated

TWO = [Group(0.25, 0.6), Group(0.75, 1.2)]


def test_groups_share_out_all_applications() -> None:
    for apps in (1, 2, 3, 10, 1999):
        workload = grouped(apps, TWO)
        assert len(workload) == apps
        assert (workload.group == 0).sum() == round(apps / 4)
    assert grouped(8, TWO).launches.tolist() == [20_000] * 2 + [40_000] * 6
    assert grouped(8, TWO).run_s == pytest.approx([0.6] * 2 + [1.2] * 6)


def test_a_spread_keeps_the_mean_and_varies_the_period() -> None:
    launches = grouped(100, [Group(1.0, 0.3, spread=0.2)]).launches
    assert launches.mean() == pytest.approx(10_000, rel=1e-3)
    assert (launches.min(), launches.max()) == (8020, 11980)


def test_lognormal_cycles_have_their_median() -> None:
    workload = lognormal(4000, median_run_s=0.3, sigma=1.0, launch_us=30, seed=1)
    assert np.median(workload.launches) == pytest.approx(10_000, rel=0.06)
    assert np.log(workload.launches).std() == pytest.approx(1.0, rel=0.06)


def test_repeating_a_few_programs_varies_their_periods() -> None:
    few = Workload(np.array([100, 2000]), np.array([1e-5, 2e-5]), np.array([0, 1]))
    many = repeated(few, 11)
    assert many.launches[:2].tolist() == [100, 2000]
    assert len(set(many.launches[1::2].tolist())) == 5
    assert (many.launch_s[1::2] == 2e-5).all()
    assert (many.launches[::2] <= 120).all()


@pytest.mark.parametrize("zipf", [0.0, 0.7])
def test_shares_give_each_group_its_time(zipf: float) -> None:
    workload = grouped(40, TWO)
    share = time_shares(Mix((0.9, 0.1), zipf), workload)
    assert share.sum() == pytest.approx(1)
    assert np.bincount(workload.group, share) == pytest.approx([0.9, 0.1])
    assert share[0] / share[1] == pytest.approx(2**zipf)


def test_zipf_counts_runs_so_longer_applications_take_more_time() -> None:
    workload = Workload(np.array([10, 100]), np.full(2, 1e-3), np.zeros(2, np.int64))
    assert time_shares(Mix(zipf=1.0), workload) == pytest.approx([1 / 6, 5 / 6])


@pytest.mark.parametrize(
    ("mix", "field"),
    [
        (Mix((0.5, 0.4)), "group_shares"),
        (Mix((1.5, -0.5)), "group_shares"),
        (Mix((1.0,)), "group_shares"),
        (Mix((0.5, float("nan"))), "group_shares"),
        (Mix(zipf=-1.0), "zipf"),
    ],
)
def test_impossible_shares_are_refused_by_name(mix: Mix, field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        time_shares(mix, grouped(8, TWO))


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: grouped(0, TWO), "apps"),
        (lambda: grouped(5, [Group(0.5, 1.0)]), "apps_share"),
        (lambda: grouped(5, []), "apps_share"),
        (lambda: lognormal(0, median_run_s=1, sigma=1, launch_us=1, seed=1), "apps"),
        (lambda: Workload(np.array([0]), np.ones(1), np.zeros(1, np.int64)), "launches"),
        (lambda: Workload(np.array([1]), np.zeros(1), np.zeros(1, np.int64)), "launch_s"),
        (lambda: Workload(np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64)), "apps"),
        (lambda: Sampling(interval=0.5), "interval"),
        (lambda: Sampling(interval=float("nan")), "interval"),
        (lambda: Sampling(reset_s=0.0), "reset_s"),
        (lambda: Sampling(rotation_s=-1.0), "rotation_s"),
        (lambda: Sampling(counter_groups=0), "counter_groups"),
    ],
)
def test_impossible_values_are_refused_by_name(make, field: str) -> None:  # noqa: ANN001 - a table of closures
    with pytest.raises(ConfigError, match=field):
        make()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"clients": 0}, "clients"),
        ({"load": 0.0}, "load"),
        ({"load": 1.5}, "load"),
        ({"dwell_s": -1.0}, "dwell_s"),
        ({"share": np.array([0.5, 0.4])}, "share"),
        ({"share": np.array([1.0])}, "share"),
    ],
)
def test_impossible_fleets_are_refused_by_name(changes: dict[str, object], field: str) -> None:
    fields = {"share": np.full(2, 0.5), **changes}
    with pytest.raises(ConfigError, match=field):
        Scenario(grouped(2, [Group(1.0, 1.0)]), **fields)  # type: ignore[arg-type]


def test_the_chooser_draws_with_the_given_probabilities() -> None:
    share = np.array([0.5, 0.0, 0.3, 0.01, 0.19])
    bits = by_number(stream(7, 1), np.arange(200_000, dtype=np.uint64)) >> np.uint64(32)
    counts = np.bincount(Chooser.of(share).draw(bits).astype(int), minlength=5)
    expected = share * 200_000
    assert counts[1] == 0
    some = share > 0
    assert ((counts - expected)[some] ** 2 / expected[some]).sum() < 16  # 3 degrees: p = 0.001


@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_hashed_numbers_look_random(seed: int) -> None:
    bits = by_number(stream(seed, 3), np.arange(50_000, dtype=np.uint64))
    uniform = bits / 2**64
    assert abs(uniform.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 50_000)
    assert abs(np.corrcoef(uniform[1:], uniform[:-1])[0, 1]) < 4 / np.sqrt(50_000)
    for bit in (0, 13, 31, 32, 63):
        ones = (bits >> np.uint64(bit)) & np.uint64(1)
        assert abs(ones.mean() - 0.5) < 4 * 0.5 / np.sqrt(50_000)


def test_the_period_of_a_row_of_names_is_found() -> None:
    rng = np.random.default_rng(1)
    cycle = rng.integers(0, 30, 137)
    row = np.tile(cycle, 20)
    noisy = np.where(rng.random(len(row)) < 0.05, 31, row)
    assert period(row) == 137
    assert period(noisy) == 137
    assert period(rng.integers(0, 30, 2000)) == 2000


def test_recordings_that_are_not_there_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PENROSE_TRACES", raising=False)
    with pytest.raises(TraceError, match="PENROSE_TRACES"):
        from_traces("streams")
    monkeypatch.setenv("PENROSE_TRACES", str(tmp_path))
    with pytest.raises(TraceError, match="corpus"):
        from_traces("corpus")


def test_a_workload_is_measured_from_streams(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "streams").mkdir()
    for name, cycle, duration_ns in (("a", 50, 1000), ("b", 80, 3000), ("short", 7, 1)):
        with gzip.open(tmp_path / "streams" / f"{name}.csv.gz", "wt", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["start_ns", "dur_ns", "name_id"])
            rows.writerows([step, duration_ns, step % cycle] for step in range(cycle * 10))
    monkeypatch.setenv("PENROSE_TRACES", str(tmp_path))
    workload = from_traces("streams")
    assert workload.launches.tolist() == [50, 80]
    assert workload.launch_s == pytest.approx([1e-6, 3e-6])
    assert workload.group.tolist() == [0, 1]


@pytest.mark.skipif("PENROSE_TRACES" not in os.environ, reason="PENROSE_TRACES is not set")
def test_real_recordings_have_the_iterations_that_others_found() -> None:
    found = set(from_traces("streams").launches.tolist())
    assert {3874, 1428, 1462, 822, 321, 866} <= found
    corpus = from_traces("corpus")
    with (Path(os.environ["PENROSE_TRACES"]) / "corpus" / "corpus.csv").open() as file:
        periods = [int(float(row["period"] or 0)) for row in csv.DictReader(file)]
    assert all(k == wanted for k, wanted in zip(corpus.launches, periods, strict=True) if wanted)
