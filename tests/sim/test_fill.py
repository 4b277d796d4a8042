"""Histograms of clients against counting sample by sample."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.sim.engine import simulate_clients
from penrose_ray.sim.fill import Fill, Reporting, Sent
from penrose_ray.sim.scenario import Sampling
from penrose_ray.sim.session import blocks

if TYPE_CHECKING:
    from conftest import Fleets

    from penrose_ray.sim.scenario import Scenario


def histograms(scenario: Scenario, seed: int, windows: range) -> Counter[tuple[int, int, int]]:
    """Samples by (client, application, group), one client after the other."""
    samples: Counter[tuple[int, int, int]] = Counter()
    for window in windows:
        for block in blocks(scenario, seed):
            visits = block.visits(window)
            for client, app, group, taken in zip(
                visits.client, visits.app, visits.group, visits.samples, strict=True
            ):
                samples[int(client) + block.first, int(app), int(group)] += int(taken)
    return samples


def filled(scenario: Scenario, seed: int, windows: range, fill: Fill) -> Sent:
    for window in windows:
        fill.start_window()
        for block in blocks(scenario, seed):
            fill.take(block.visits(window), block.first)
    return fill.end_batch()


@pytest.mark.parametrize("form", ["duty", "on_off"])
@pytest.mark.parametrize("reset_s", [600.0, 473.0])
@pytest.mark.parametrize("rules", [Reporting(500, 150), Reporting(300, 100, reports_per_class=0)])
def test_reports_of_a_batch_are_those_of_each_client(
    fleets: Fleets, form: str, reset_s: float, rules: Reporting
) -> None:
    sampling = Sampling(reset_s=reset_s, counter_groups=2)
    load = 0.05 if form == "duty" else 0.4
    scenario = fleets.alike(3, 1000, clients=40, load=load, load_form=form, sampling=sampling)
    sent = filled(scenario, 5, range(12), Fill(scenario, rules))
    reports, samples, full, carried = np.zeros((3, 2), int), np.zeros((3, 2), int), 0, 0
    most, least = rules.samples_per_histogram, rules.min_samples
    for (_, app, group), taken in histograms(scenario, 5, range(12)).items():
        carried += taken if taken < least else 0
        kept = min(taken, rules.reports_per_class * most) if rules.reports_per_class else taken
        pieces = [most] * (kept // most) + ([kept % most] if kept % most >= least else [])
        reports[app, group] += len(pieces)
        samples[app, group] += sum(pieces)
        full += pieces.count(most)
    assert (sent.reports == reports).all()
    assert (sent.samples_by_pair == samples).all()
    assert sent.full == full
    assert sent.taken == sum(histograms(scenario, 5, range(12)).values())
    assert sent.dropped == sent.taken - samples.sum() - carried


def test_a_short_histogram_is_carried_over_once_then_dropped(fleets: Fleets) -> None:
    scenario = fleets.alike(40, 1000, clients=30, load=0.05)  # 100 samples a window
    rules = Reporting(min_samples=150)
    fill = Fill(scenario, rules)
    first = filled(scenario, 2, range(4), fill)
    second = filled(scenario, 2, range(4, 8), fill)
    early, late = histograms(scenario, 2, range(4)), histograms(scenario, 2, range(4, 8))
    carried = {key: taken for key, taken in early.items() if taken < 150}
    due = Counter(late)
    due.update(carried)
    assert first.reports.sum() == sum(taken >= 150 for taken in early.values())
    assert first.dropped == 0
    assert second.reports.sum() == sum(taken >= 150 for taken in due.values())
    lost = sum(taken for key, taken in due.items() if taken < 150 and key in carried)
    assert second.dropped == lost > 0


def test_tokens_limit_what_a_client_sends(fleets: Fleets) -> None:
    scenario = fleets.alike(200, 1000, clients=300)
    free = filled(scenario, 3, range(40), Fill(scenario, Reporting()))
    bound = filled(scenario, 3, range(40), Fill(scenario, Reporting(tokens_per_batch=10)))
    assert free.reports.sum() > 300 * 30
    assert bound.reports.sum() == 300 * 9  # one token in ten goes into cover
    shares = bound.samples_by_pair.ravel() / free.samples_by_pair.ravel()
    assert shares.std() < 0.1  # chosen at random: no class is favoured


def test_a_token_goes_to_a_larger_histogram_more_often(fleets: Fleets) -> None:
    scenario = fleets.alike(2, 1000, clients=2000)
    skewed = type(scenario)(scenario.workload, np.array([0.9, 0.1]), clients=2000, load=0.1)
    sent = filled(skewed, 4, range(12), Fill(skewed, Reporting(tokens_per_batch=2)))
    assert sent.reports.sum() == pytest.approx(2000, abs=1)
    assert sent.reports[0, 0] > 4 * sent.reports[1, 0]


def test_no_full_histogram_before_3000_s_of_busy_time(fleets: Fleets) -> None:
    # H S launches of 30 us are 3,000 s; at 10 % load that is 30,000 s, or 50 windows
    scenario = fleets.alike(1, 1000, clients=500)
    rules = Reporting(min_samples=10_000, reports_per_class=0)
    fill = Fill(scenario, rules)
    early = filled(scenario, 1, range(49), fill)
    assert (early.full, early.reports.sum()) == (0, 0)
    at_last = filled(scenario, 1, range(49, 50), fill)
    assert at_last.full == at_last.reports.sum() == 500


def test_the_engine_sends_a_batch_at_its_end_and_what_is_open_at_the_last(fleets: Fleets) -> None:
    scenario = fleets.alike(5, 1000, clients=100)
    told: list[tuple[int, int]] = []
    outcome = simulate_clients(
        scenario, hours=5, reporting=Reporting(), batch_s=7200.0, progress=lambda *at: told.append(at)
    )
    assert len(outcome.batches) == 3
    assert sum(each.taken for each in outcome.batches) == 100 * 30 * 200
    assert told[-1] == (30, 30)
    with pytest.raises(ConfigError, match="batch_s"):
        simulate_clients(scenario, hours=1, batch_s=10.0)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"samples_per_histogram": 0}, "samples_per_histogram"),
        ({"min_samples": 0}, "min_samples"),
        ({"reports_per_class": -1}, "reports_per_class"),
        ({"tokens_per_batch": -1}, "tokens_per_batch"),
        ({"cover_rate": 1.0}, "cover_rate"),
    ],
)
def test_impossible_rules_are_refused_by_name(changes: dict[str, float], field: str) -> None:
    with pytest.raises(ConfigError, match=field):
        Reporting(**changes)  # type: ignore[arg-type]
