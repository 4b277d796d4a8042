"""The published table, sweeps, the gate, and configurations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim import catalogue, published
from penrose_ray.sim.engine import simulate_clients
from penrose_ray.sim.experiments import changed_settings, coverage_against, coverage_table
from penrose_ray.sim.fill import Sent
from penrose_ray.sim.gate import gate_outlook, release_of
from penrose_ray.sim.settings import ReportingSettings, SimulationSettings, load_simulation, scenario_of

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIGS = Path(__file__).parents[2] / "configs"
PAPER = CONFIGS / "coverage-paper.toml"
FILES = sorted(CONFIGS.glob("coverage-*.toml")) + sorted(CONFIGS.glob("sim-*.toml"))


@pytest.fixture
def edited(tmp_path: Path) -> Callable[..., Path]:
    def make(*changes: tuple[str, str]) -> Path:
        text = PAPER.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        path = tmp_path / "edited.toml"
        path.write_text(text)
        return path

    return make


def test_the_published_cells_of_500_and_1000_are_met_within_five_percent() -> None:
    told: list[str] = []
    table, curves = coverage_table(load_simulation(PAPER), progress=told.append)
    assert len(table) == len(told) == 9
    for row in table.itertuples():
        assert row.published_hours == published.HOURS[row.apps, row.mix]
        assert row.ratio == pytest.approx(row.hours / row.published_hours)
        assert row.hours == pytest.approx(row.expected_hours, rel=0.01)
        assert row.apps == 2000 or row.ratio == pytest.approx(1, abs=0.05)
        assert bool(row.note) == (row.apps == 2000)
    ends = curves.groupby(["apps", "mix"])["coverage"].max()
    assert (ends >= 0.99).all()


def test_the_column_of_2000_is_linear_and_says_why_it_is_not_met() -> None:
    table = coverage_table(load_simulation(PAPER)).table.set_index(["apps", "mix"])
    for mix in ("uniform", "small", "large"):
        assert table.loc[(2000, mix), "hours"] == pytest.approx(2 * table.loc[(1000, mix), "hours"], rel=0.01)
    assert "1.53 (uniform), 1.29 (small), 1.98 (large)" in table.loc[(2000, "small"), "note"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_configuration_is_accepted(path: Path) -> None:
    settings = load_simulation(path)
    if not settings.workload.traces:
        for apps in settings.apps:
            for mix in settings.mixes:
                assert scenario_of(settings, apps, mix).share.sum() == pytest.approx(1)
    if settings.sweep:
        for value in settings.sweep.values:
            changed_settings(settings, settings.sweep.parameter, value)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("load = 0.1", "load = -0.1", "fleet.load"),
        ("load = 0.1", "load = nan", "fleet.load"),
        ("interval = 10_000", "interval = 0", "sampling.interval"),
        ("interval = 10_000", "interval = inf", "sampling.interval"),
        ("apps = [2000, 1000, 500]", "apps = [0]", "apps"),
        ("apps = [2000, 1000, 500]", "apps = []", "apps"),
        ("[0.9308, 0.0692]", "[0.9308, 0.2]", "mixes.small.group_shares"),
        ("[0.9308, 0.0692]", "[1.2, -0.2]", "mixes.small.group_shares"),
        ("[0.9308, 0.0692]", "[1.0]", "mixes.small.group_shares"),
        ("apps_share = 0.5", "apps_share = 0.6", "apps_share"),
        ("run_s = 0.5984", "run_s = -1", "workload.groups.0.run_s"),
        ("target = 0.99", "target = 1.0", "target"),
        ("clients = 100_000", "clients = 0", "fleet.clients"),
        ("clients = 100_000", "client = 5", "fleet.client"),
        ('mode = "poisson"', 'mode = "possion"', "mode"),
        ('experiment = "coverage"', 'experiment = "sweep"', "sweep"),
    ],
)
def test_an_impossible_configuration_is_refused_with_the_field(
    edited: Callable[..., Path], old: str, new: str, field: str
) -> None:
    with pytest.raises(ConfigError, match=field):
        load_simulation(edited((old, new)))


def test_groups_and_traces_exclude_one_another(edited: Callable[..., Path]) -> None:
    with pytest.raises(ConfigError, match="workload"):
        load_simulation(
            edited(("[[workload.groups]]", '[workload]\ntraces = "streams"\n[[workload.groups]]'))
        )


def test_a_mix_without_a_share_for_a_group_never_ends(edited: Callable[..., Path]) -> None:
    settings = load_simulation(edited(("[0.9308, 0.0692]", "[1.0, 0.0]")))
    with pytest.raises(ConfigError, match="never reached"):
        coverage_table(settings)


def small_settings(**changes: object) -> SimulationSettings:
    settings = load_simulation(PAPER)
    return settings.model_copy(update={"apps": (20,), "mode": "session", **changes})


def test_hours_against_a_setting() -> None:
    table = coverage_against(load_simulation(PAPER), "fleet.clients", (100_000, 200_000))
    means = table.groupby("value")["hours"].mean()
    assert means[100_000] == pytest.approx(2 * means[200_000], rel=0.01)
    mixes = coverage_against(small_settings(mode="closed_form"), "mix", ("small", "uniform"))
    assert mixes["mix"].tolist() == ["small", "uniform"]
    apps = coverage_against(small_settings(mode="closed_form"), "apps", (10, 20))
    assert apps.groupby("apps")["hours"].mean().pipe(lambda hours: hours[20] / hours[10]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("fleet.gpus", 5), ("nonsense", 5), ("fleet", 5), ("mix", "none"), ("fleet.load", 7.0), ("apps", 0)],
)
def test_a_sweep_over_nothing_is_refused(parameter: str, value: float | str) -> None:
    with pytest.raises(ConfigError):
        changed_settings(small_settings(), parameter, value)


def test_an_unknown_mix_is_refused() -> None:
    with pytest.raises(ConfigError, match="mix"):
        scenario_of(small_settings(), 10, "none")


def test_traffic_says_why_the_published_one_does_not_follow() -> None:
    found = catalogue.run(load_simulation(CONFIGS / "sim-traffic.toml"))
    assert found.table["apps"].tolist() == [500, 500, 2000, 2000]
    assert "110 times" in found.notes[0]


def test_sampling_errors_by_shape() -> None:
    settings = load_simulation(CONFIGS / "sim-sampling-error.toml")
    found = catalogue.run(settings.model_copy(update={"samples": (10_000, 1_000_000)}))
    table = found.table.set_index(["shape", "samples"])
    assert table.loc[("10 spikes", 1_000_000), "relative"] == pytest.approx(0.999, abs=0.01)
    assert table.loc[("bell, sd 10", 1_000_000), "relative"] < 0.5
    assert (table["absolute"] > 0.99).all()
    assert any("S = 3,397 at 100,000,000 executions" in note for note in found.notes)


def test_the_autoscaler_by_the_hour() -> None:
    table = catalogue.run(load_simulation(CONFIGS / "sim-autoscaler.toml")).table
    assert table["hour"].tolist() == list(range(24))
    assert table.loc[14, "most_waiting"] > 1e8
    assert table.loc[16, "most_waiting"] == 0
    assert table["changes"].sum() < 60


def test_a_curve_with_fewer_points_has_the_same_values_there() -> None:
    scenario = scenario_of(small_settings(), 20, "uniform")
    some = simulate_clients(scenario, hours=4, seed=2, windows_per_point=5).curve
    assert some.hours.tolist() == pytest.approx([0, 5 / 6, 10 / 6, 15 / 6, 20 / 6, 4])
    stride = scenario_of(
        small_settings(sampling=small_settings().sampling.model_copy(update={"sampler": "stride"})),
        20,
        "small",
    )
    every = simulate_clients(stride, hours=4, seed=2).curve
    some = simulate_clients(stride, hours=4, seed=2, windows_per_point=5).curve
    assert (some.coverage == every.coverage[[0, 5, 10, 15, 20, 24]]).all()
    with pytest.raises(ConfigError, match="windows_per_point"):
        simulate_clients(stride, hours=1, windows_per_point=0)


def sent_of(reports: list[list[int]]) -> Sent:
    counts = np.array(reports)
    return Sent(counts, counts, counts * 100, taken=int(counts.sum() * 200), dropped=0, full=0)


def test_the_gate_opens_for_sums_with_enough_reports() -> None:
    # r k + m c = 520; 611 reports are the fewest with 611 x 0.9 - 4 sqrt(611 x 0.09) >= 520
    release = release_of(
        sent_of([[550, 549], [10_000, 0]]), ReportingSettings(), np.array([1.0, 0.5]), np.array([0.25, 0.75])
    )
    assert release.needed == 611
    assert release.passed_share == 0.5  # 550 real ones are 611.1 with cover, 549 are 610
    assert release.time_share == pytest.approx(0.5)
    assert release.samples_share == pytest.approx(10_550 / 11_099 / 2)
    assert release.covered_share == pytest.approx((1.0 * 0.5 + 0.5 * 0.5) / 2)
    assert release.contributors == (0, 549, 10_000)


def test_a_fleet_that_spreads_releases_nothing_and_one_that_does_not_releases_all() -> None:
    settings = small_settings(
        apps=(4, 400), fleet=load_simulation(PAPER).fleet.model_copy(update={"clients": 2000})
    )
    only_uniform = settings.model_copy(update={"mixes": {"uniform": settings.mixes["uniform"]}})
    told: list[str] = []
    table = gate_outlook(only_uniform, [{}, {"min_contributors": 50}], progress=told.append)
    assert len(table) == len(told) == 4
    few, many = table[table["apps"] == 4], table[table["apps"] == 400]
    assert (few["passed"] == 1).all()
    assert (few["coverage_released"] > 0.99).all()
    assert (many["passed"] == 0).all()
    assert (many["samples_released"] == 0).all()
    assert table["needed"].tolist() == [611, 440] * 2
    assert (few["fewest_clients"] <= 2000).all()
