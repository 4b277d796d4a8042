"""Plans, traffic and unit costs against figures worked out by hand."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.costs import UnitCosts, measured_costs
from penrose_ray.sim.planner import Demand, plan, reports_per_client_day
from penrose_ray.sim.settings import ReportingSettings
from penrose_ray.sim.traffic import published_gap, rates, traffic_table

if TYPE_CHECKING:
    from pathlib import Path


def test_hours_follow_the_published_table_and_fall_with_gpus() -> None:
    hours = plan(Demand(gpus=100_000, apps=1000)).hours
    assert hours == pytest.approx({"uniform": 1.449, "small": 10.45, "large": 4.699}, rel=1e-3)
    ten = plan(Demand(gpus=1_000_000, apps=10_000)).hours
    assert ten == pytest.approx(hours, rel=1e-9)
    assert plan(Demand(gpus=100_000, apps=1000, counter_groups=4)).hours["uniform"] == pytest.approx(
        4 * hours["uniform"]
    )


def test_a_client_sends_as_many_reports_as_its_tokens_and_classes_allow() -> None:
    assert reports_per_client_day(Demand(gpus=1, apps=20_000)) == pytest.approx(32)
    free = ReportingSettings(tokens_per_day=0, cover_rate=0.0)
    assert reports_per_client_day(Demand(gpus=1, apps=1, rules=free)) == 1
    # 144 visits to 100 classes: 100 (1 - 0.99^144) of them
    assert reports_per_client_day(Demand(gpus=1, apps=100, rules=free)) == pytest.approx(76.48, abs=0.01)
    more = ReportingSettings(tokens_per_day=0, cover_rate=0.0, reports_per_class=3)
    assert reports_per_client_day(Demand(gpus=1, apps=100, rules=more)) == pytest.approx(144)


def test_ten_million_gpus() -> None:
    made = plan(Demand(gpus=10_000_000, apps=20_000))
    assert made.reports_per_s == pytest.approx(32 * 10_000_000 / 86_400)
    assert made.reports_per_pair == pytest.approx(16_000)
    # r k + m c = 200 + 320: N 0.9 - 4 sqrt(0.09 N) >= 520 holds from 611 on
    assert made.reports_needed == 611
    assert made.gate_opens_at_gpus == pytest.approx(10_000_000 * 611 / 16_000)
    parts = {part.part: part for part in made.parts}
    assert parts["gateways"].units == pytest.approx(made.reports_per_s / 2000)
    assert parts["journals"].need == pytest.approx(made.reports_per_s * 172_800 * 2900)
    assert parts["design server"].need == pytest.approx(20_000 * 0.016 / 60)
    assert parts["onion service"].need == pytest.approx(3 * made.reports_per_s)


def test_the_peak_is_where_most_clients_send_at_once() -> None:
    made = plan(Demand(gpus=100_000, apps=20_000))
    # 32 reports a client within 12 h after the batch's end, for 32 x 300 s < 12 h
    assert made.peak_reports_per_s == pytest.approx(100_000 * 32 / 43_200)
    assert made.peak_clients_per_s == pytest.approx(100_000 / 8 / 21_600)
    # batches of an hour: 0.5 h to begin in, and 1 1/3 reports take less
    short = ReportingSettings(batch_s=3600)
    assert plan(Demand(gpus=3600, apps=20_000, rules=short)).peak_reports_per_s == pytest.approx(32 / 24 * 2)
    # 288 reports a day at 300 s each fill the day: no peak
    many = ReportingSettings(tokens_per_day=320)
    busy = plan(Demand(gpus=3000, apps=20_000, dwell_s=60, rules=many))
    assert busy.peak_reports_per_s == pytest.approx(3000 / 300)
    free = ReportingSettings(reports_per_class=0, tokens_per_day=0)
    steady = plan(Demand(gpus=1000, apps=500, rules=free))
    assert (steady.peak_reports_per_s, steady.peak_clients_per_s) == (steady.reports_per_s, 0)


def test_the_gate_is_passed_with_fewer_groups_or_fewer_hostile_clients() -> None:
    withheld = plan(Demand(gpus=100_000, apps=2000, counter_groups=4))
    # 32 reports a client a day over 8,000 sums; k alone needs 244, k = 50 with m = 10 still 440
    assert withheld.reports_per_pair == pytest.approx(400)
    assert withheld.passes_with == (
        "counter_groups = 1 (1,600 reports, 611 needed)",
        "hostile_clients = 0 (400 reports, 244 needed)",
    )
    assert plan(Demand(gpus=200_000, apps=2000, counter_groups=4)).passes_with == ()


def test_what_breaks_first_is_the_smallest_limit_and_does_not_depend_on_the_size_asked_for() -> None:
    small, large = plan(Demand(gpus=1000, apps=500)), plan(Demand(gpus=5_000_000, apps=500))
    assert small.breaks_first.part == large.breaks_first.part == "Tor network"
    assert small.breaks_first.breaks_at_gpus == pytest.approx(1_600_000)
    assert large.breaks_first.breaks_at_gpus == pytest.approx(1_600_000)
    roomy = plan(Demand(gpus=1000, apps=500), UnitCosts(tor_users=1e12))
    assert roomy.breaks_first.part == "gateways"
    assert roomy.breaks_first.breaks_at_gpus == pytest.approx(2000 * 86_400 / 32)


def test_a_matcher_too_large_for_a_machine_breaks_at_any_size() -> None:
    made = plan(Demand(gpus=10, apps=1000), UnitCosts(bytes_per_class=1e9))
    assert made.breaks_first.part == "matcher"


@pytest.mark.parametrize(
    "field", ["gpus", "apps", "counter_groups", "gpu_models", "gpus_per_host", "dwell_s"]
)
def test_impossible_demands_are_refused_by_name(field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Demand(**{"gpus": 1, "apps": 1, field: 0})  # type: ignore[arg-type]


def test_unit_costs_come_from_the_benchmarks_where_there_are_some(tmp_path: Path) -> None:
    assert measured_costs(tmp_path) == (UnitCosts(), ())
    aggregate = {"durable_native_per_s_core": None, "durable_per_s_core": 12_345, "bytes_per_class": 900}
    (tmp_path / "aggregate.json").write_text("a table\n" + json.dumps(aggregate) + "\n")
    costs, found = measured_costs(tmp_path)
    assert (costs.durable_per_s_core, costs.bytes_per_class) == (12_345, 900)
    assert found == ("durable_per_s_core", "bytes_per_class")
    assert costs.decrypt_crt_ms == UnitCosts().decrypt_crt_ms


@pytest.mark.parametrize("text", ["", "no json\n", "[1]\n"])
def test_a_benchmark_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "crypto.json").write_text(text)
    with pytest.raises(ConfigError, match=r"crypto\.json"):
        measured_costs(tmp_path)


def test_unit_costs_are_positive() -> None:
    with pytest.raises(ConfigError, match="row_bytes"):
        plan(Demand(gpus=1, apps=1), UnitCosts(row_bytes=0))
    with pytest.raises(ConfigError, match="decrypt_crt_ms"):
        plan(Demand(gpus=1, apps=1), UnitCosts(decrypt_crt_ms=math.nan))


def test_rates_of_the_published_fleet() -> None:
    fleet = rates(Demand(gpus=100_000, apps=2000))
    assert fleet.samples_per_s == pytest.approx(33_333, rel=1e-4)
    assert fleet.snippets_per_s == pytest.approx(33_333, rel=1e-4)
    assert fleet.full_histograms_per_s == pytest.approx(3.333, rel=1e-3)


def test_the_published_traffic_is_110_times_one_histogram_a_period() -> None:
    gap = published_gap()
    assert gap.bytes_per_s_busy == pytest.approx(1.1e6, rel=0.01)
    assert gap.factor == pytest.approx(110, abs=0.5)
    assert gap.histograms_per_s == pytest.approx(3662, abs=1)
    assert gap.seconds_between == pytest.approx(27, abs=0.5)
    assert gap.bytes_per_snippet == pytest.approx(3600)


def test_money_is_a_machine_for_a_hundred_thousand_gpus() -> None:
    table = traffic_table(Demand(gpus=100_000, apps=2000)).set_index("form")
    assert (table["machines_usd_per_year"] == 5519).all()
    assert table["usd_per_gpu_year"].iloc[0] == pytest.approx(0.05519)
    assert table["bytes_per_s"].iloc[1] == pytest.approx(100_000 * 32 / 86_400 * 4096)
