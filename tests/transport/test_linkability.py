"""Closed forms against drawn times, at sizes where every guess can be played."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from penrose_ray.errors import ConfigError
from penrose_ray.transport.linkability import (
    LIMIT,
    Assumptions,
    findings,
    hostile_guard_probability,
    matching_probability,
    same_client_probability,
    sender_probability,
    simulate_matching,
    simulate_same_client,
    tor_load,
    uploads_until_known,
)

FLEET = Assumptions()


def test_a_fleet_keeps_the_published_bound_for_the_service_alone() -> None:
    assert sender_probability(FLEET) <= LIMIT
    assert sender_probability(replace(FLEET, clients=99_999)) > LIMIT


@pytest.mark.parametrize("clients", [1_000, 5_000, 20_000])
def test_the_next_upload_is_found_as_often_as_the_formula_says(clients: int) -> None:
    some = replace(FLEET, clients=clients)
    simulated = simulate_same_client(some, 1_000_000, np.random.default_rng(1))
    assert same_client_probability(some) == pytest.approx(simulated, rel=0.25)


def test_a_game_with_every_client_s_real_times_agrees() -> None:
    """All clients draw phases, intervals and delays; the observer takes the upload nearest to its guess."""
    some = Assumptions(clients=400)
    rng = np.random.default_rng(2)
    hits, rounds = 0, 6_000
    for _ in range(rounds):
        phase = rng.uniform(0, some.report_every_s, some.clients)
        intervals = rng.normal(some.report_every_s, some.spread_s, (4, some.clients)).cumsum(axis=0)
        times = phase + intervals + rng.exponential(some.mean_gap_s, (4, some.clients))
        guess = times[0, 0] + some.report_every_s
        nearest = np.unravel_index(np.argmin(np.abs(times - guess)), times.shape)
        hits += nearest == (1, 0)
    assert hits / rounds == pytest.approx(same_client_probability(some), rel=0.25)


def test_matching_agrees_with_drawn_uploads() -> None:
    for latency_s in (0.01, 0.3, 5.0):
        some = replace(FLEET, latency_s=latency_s)
        simulated = simulate_matching(some, 200_000, np.random.default_rng(3))
        assert matching_probability(some) == pytest.approx(simulated, rel=0.02)


def test_three_guards_meet_a_hostile_one_about_three_times_as_likely() -> None:
    ratio = hostile_guard_probability(replace(FLEET, guards=3)) / hostile_guard_probability(FLEET)
    assert ratio == pytest.approx(2.97, abs=0.01)


def test_more_delay_hides_more() -> None:
    slow = replace(FLEET, mean_gap_s=1200.0)
    assert same_client_probability(slow) < same_client_probability(FLEET)


def test_both_ends_watched_know_a_client_after_a_few_uploads() -> None:
    assert uploads_until_known(FLEET) == 2
    assert uploads_until_known(replace(FLEET, latency_s=200.0)) == 5


def test_the_findings_name_their_assumptions() -> None:
    found = findings(FLEET, rounds=10_000, rng=np.random.default_rng(4))
    assert all(each.assumes for each in found)
    assert [each.within_limit for each in found] == [True, False, True, False, False]


def test_the_load_of_100_000_clients() -> None:
    load = tor_load(FLEET)
    assert load.uploads_per_s == pytest.approx(33.3, abs=0.1)
    assert load.circuits_per_s == pytest.approx(100.0)
    assert 5 < load.relay_mbit_per_s < 15
    assert load.synchronous_uploads_per_s == pytest.approx(1667, abs=1)
    assert load.most_clients_per_address == 4500


@pytest.mark.parametrize(
    "wrong", [{"clients": 1}, {"latency_s": 0.0}, {"guards": 0}, {"hostile_guard_share": 1.5}]
)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        replace(FLEET, **wrong)  # type: ignore[arg-type]
