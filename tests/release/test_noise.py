"""Noise: right distribution, right slots, a budget that no crash loses, and one rule that breaks its
promise."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from scipy import stats

from penrose_ray.accuracy import noise_sigma
from penrose_ray.clock import ManualClock
from penrose_ray.crypto.packing import unpack
from penrose_ray.errors import BudgetError, ConfigError
from penrose_ray.opening import open_sums
from penrose_ray.release.budget import Budget, epsilon
from penrose_ray.release.desk import Desk
from penrose_ray.release.handover import Handover, build, make
from penrose_ray.release.noise import discrete_gaussian, noise_slots, sensitivity
from penrose_ray.types import BatchId

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray
    from release.conftest import Parts

    from penrose_ray.crypto.keyfile import DesignKeys
    from penrose_ray.task import Task


@pytest.fixture
def noisy(task: Task) -> Task:
    """5 tokens a day, one report a sum; sigma 1,000 samples."""
    return msgspec.structs.replace(
        task, tokens_per_day=5, hostile_clients=0, noise_sigma=1000.0, noise_epsilon=8.0
    )


def test_the_sampler_draws_the_discrete_gaussian() -> None:
    """Chi-square against exp(-x^2 / 2 sigma^2) / Z of the definition, at a level of 1e-9."""
    pytest.importorskip("opendp")
    sigma, most = 3.0, 9
    drawn = np.concatenate([discrete_gaussian(sigma) for _ in range(80)])
    support = np.arange(-200, 201)
    mass = np.exp(-(support**2) / (2 * sigma**2))
    mass /= mass.sum()
    inside = np.arange(-most, most + 1)
    counts = np.array([(drawn == x).sum() for x in inside] + [(np.abs(drawn) > most).sum()])
    expected = np.append(mass[np.isin(support, inside)], mass[np.abs(support) > most].sum()) * drawn.size
    assert stats.chisquare(counts, expected).pvalue > 1e-9


def test_noise_keeps_the_sum_rule_and_no_slot_goes_negative(noisy: Task) -> None:
    """By hand: B = 12 sigma, U = 12 sigma sqrt(128) = 135,765 (rounded up)."""
    offsets = noisy.noise_offsets()
    assert (offsets.bin, offsets.unfilled) == (12_000, 135_765)
    rng = np.random.default_rng(3)
    draws = [np.full(128, 12_001), rng.normal(0, 1000, 128).round().astype(np.int64)]
    slots = noise_slots(noisy, lambda _: draws.pop(0))
    assert not draws, "a draw beyond the offsets is drawn again"
    assert slots.bins.sum() + slots.unfilled == 128 * offsets.bin + offsets.unfilled
    assert slots.bins.min() >= 0
    assert slots.unfilled >= 0
    assert slots.real_reports == 0


def test_the_sum_is_opened_with_its_noise(noisy: Task, parts: Parts, design_keys: DesignKeys) -> None:
    noise = np.arange(-64, 64)
    handover = build(noisy, [parts.one("a", 5)], lambda _: "GPU", parts.encryptor, sample=lambda _: noise)
    (entry,) = handover.entries
    slots = unpack(design_keys.paillier.decrypt(entry.blob, noisy.profile()), noisy.profile())
    assert slots.unfilled == 135_765 + 64
    (opened,) = open_sums(noisy, handover.batch, handover.entries, design_keys.paillier).sums
    expected = noise.copy()
    expected[3] += 500
    np.testing.assert_array_equal(opened.counts, expected)
    assert (opened.reports, opened.real_reports) == (5, 5)


def test_capacity_leaves_room_for_noise(noisy: Task) -> None:
    widest = (1 << 47) - 1
    assert noisy.capacity() == (widest - 2 * 135_765) // 100


def test_noise_is_refused_in_narrow_slots_and_without_tokens(task: Task) -> None:
    compact = msgspec.structs.replace(task, noise_sigma=10.0, slot_profile="compact3072")
    with pytest.raises(ConfigError, match="too narrow for noise"):
        compact.check()
    with pytest.raises(ConfigError, match="noise_delta"):
        msgspec.structs.replace(task, noise_sigma=10.0, noise_delta=0.0).check()
    with pytest.raises(ConfigError, match="without tokens"):
        sensitivity(msgspec.structs.replace(task, noise_sigma=10.0))


def brute_force_sensitivity(task: Task, sums: int) -> float:
    """Largest change over all ways to spread the day's tokens over sums, every sample moved to another
    bin."""
    per_sum = task.reports_per_class or task.tokens_per_day

    def best(tokens: int, left: int) -> float:
        if not left:
            return 0.0
        return max(2 * n * n + best(tokens - n, left - 1) for n in range(min(per_sum, tokens) + 1))

    return math.sqrt(best(task.tokens_per_day, sums)) * task.samples_per_histogram


@pytest.mark.parametrize(("r", "c"), [(1, 5), (2, 6), (3, 6), (0, 4)])
def test_sensitivity_is_the_most_that_one_client_can_change(task: Task, r: int, c: int) -> None:
    changed = msgspec.structs.replace(task, reports_per_class=r, tokens_per_day=c)
    assert sensitivity(changed) == pytest.approx(brute_force_sensitivity(changed, sums=c))


def delta_of(loss: NDArray[np.float64], eps: float) -> float:
    """Delta that a mechanism has at epsilon, E max(0, 1 - e^(eps - loss)), by its losses in many runs."""
    return float(np.maximum(0.0, -np.expm1(eps - loss)).mean())


def test_noise_hides_a_client_that_spends_its_tokens_on_many_sums(task: Task) -> None:
    """One client moves all its samples in 8 sums of a batch; what is drawn is the noise of real releases.

    Noise that hides its part in one sum alone promises delta 0.02 at epsilon 1, and tells the client from
    another one in nearly every batch.
    """
    pytest.importorskip("opendp")
    eps, delta, sums = 1.0, 0.02, 8
    task = msgspec.structs.replace(task, tokens_per_day=sums, reports_per_class=1)
    moved = np.tile([-1.0, 1.0], sums) * task.samples_per_histogram

    def simulated(sigma: float) -> float:
        noisy = msgspec.structs.replace(task, noise_sigma=sigma)
        slots = [noise_slots(noisy).bins - noisy.noise_offsets().bin for _ in range(1_000)]
        noise = np.concatenate(slots).reshape(-1, len(moved))
        return delta_of((2 * noise @ moved + moved @ moved) / (2 * sigma**2), eps)

    # 8,000 batches: the standard error of such a mean of values below 1 is 0.0009; 5.5 of them
    assert simulated(noise_sigma(eps, delta, sensitivity(task))) == pytest.approx(delta, abs=0.005)
    one_sum = math.sqrt(2) * task.samples_per_histogram
    assert simulated(noise_sigma(eps, delta, one_sum)) > 20 * delta


def test_epsilon_is_near_the_exact_value_of_one_gaussian() -> None:
    """Balle and Wang (2018, theorem 8) give delta exactly; Renyi accounting may be above it, never below."""
    pytest.importorskip("dp_accounting")

    def delta(eps: float, z: float) -> float:
        a, b = 0.5 / z - eps * z, -0.5 / z - eps * z
        return float(stats.norm.cdf(a) - math.exp(eps) * stats.norm.cdf(b))

    claimed = epsilon([2.15], 1e-5)
    assert delta(claimed, 2.15) <= 1e-5 <= delta(claimed - 0.25, 2.15)
    assert epsilon([4.3] * 4, 1e-5) == pytest.approx(claimed), "four at half the cost are one"


def test_a_batch_is_booked_once_and_the_budget_only_grows(tmp_path: Path, noisy: Task) -> None:
    budget = Budget(tmp_path / "budget.sqlite")
    assert budget.spent(noisy) == 0
    multiplier = 1000 / (math.sqrt(10) * 100)
    first = budget.spend(noisy, BatchId(1))
    assert first == budget.spend(noisy, BatchId(1)) == pytest.approx(epsilon([multiplier], 1e-5))
    second = budget.spend(noisy, BatchId(2))
    assert first < second <= noisy.noise_epsilon
    budget.close()
    again = Budget(tmp_path / "budget.sqlite")
    assert again.spent(noisy) == second
    refused = 0
    for batch in range(3, 30):
        try:
            again.spend(noisy, BatchId(batch))
        except BudgetError as error:
            assert "its budget is 8" in error.message  # noqa: PT017 - the first batches do pass
            refused += 1
    assert 0 < refused < 27
    assert again.spent(noisy) <= 8
    assert again.spent(msgspec.structs.replace(noisy, name="another")) == 0
    again.close()


KILLED = """
import os, sys
import msgspec
from pathlib import Path
from penrose_ray.release.budget import Budget
from penrose_ray.task import Task
home = Path(sys.argv[1])
task = msgspec.msgpack.decode((home / "task").read_bytes()[1:], type=Task)
Budget(home / "budget.sqlite").spend(task, 7)
os.kill(os.getpid(), 9)
"""


def test_a_budget_spent_before_a_kill_stays_spent(tmp_path: Path, noisy: Task) -> None:
    (tmp_path / "task").write_bytes(noisy.encode())
    died = subprocess.run([sys.executable, "-c", KILLED, tmp_path], check=False, env=os.environ)
    assert died.returncode == -9
    budget = Budget(tmp_path / "budget.sqlite")
    assert budget.spent(noisy) > 0
    budget.close()


def test_a_filter_stops_before_the_budget_whatever_is_asked(tmp_path: Path, noisy: Task) -> None:
    """Each noise level is chosen anew, as a rule may that looks at earlier noisy outputs."""
    budget = Budget(tmp_path / "budget.sqlite")
    asked = np.random.default_rng(5).uniform(1.5, 8.0, 60).tolist()
    passed = []
    for batch, multiplier in enumerate(asked):
        with contextlib.suppress(BudgetError):
            budget.spend(noisy, BatchId(batch), multiplier)
            passed.append(multiplier)
    budget.close()
    assert 0 < len(passed) < len(asked)
    assert epsilon(passed, noisy.noise_delta) <= noisy.noise_epsilon
    left = [z for z in asked if z not in passed]
    assert epsilon([*passed, max(left)], noisy.noise_delta) > noisy.noise_epsilon


def test_waiting_for_reports_bounds_the_error(noisy: Task) -> None:
    """sigma 1,000 against an average bin of N H / 128 samples: 5 % takes 25,600 reports of 100."""
    assert noisy.reports_for(0.05) == 25_600
    assert msgspec.structs.replace(noisy, noise_target_error=0.05).reports_needed() == 25_600
    assert msgspec.structs.replace(noisy, noise_target_error=1e6).reports_needed() == noisy.reports_needed()


def test_a_batch_that_would_be_noise_is_withheld_and_spends_nothing(
    tmp_path: Path, noisy: Task, parts: Parts
) -> None:
    """sigma 1,000 and H 100: a sum of 64 reports has 20 times its average bin in noise, one of 640 twice."""
    task = msgspec.structs.replace(noisy, noise_target_error=2.0)
    desk = Desk(tmp_path, task, ManualClock(task.batch_s * 12.0), tmp_path / "ledger.key")

    def released(batch: int, reports: int) -> Handover:
        part = [parts.one("a", reports, batch=batch)]
        return desk.release(BatchId(batch), lambda: make(task, part, lambda _: "GPU", parts.encryptor))

    nothing, something, more = released(7, 639), released(8, 640), released(9, 640)
    budget = Budget(tmp_path / "budget.sqlite")
    multiplier = 1000 / sensitivity(task)
    assert (len(nothing.entries), nothing.withheld.reports, nothing.spent_epsilon) == (0, 639, 0.0)
    assert something.spent_epsilon == pytest.approx(epsilon([multiplier], 1e-5))
    assert more.spent_epsilon == budget.spent(task) == pytest.approx(epsilon([multiplier] * 2, 1e-5))
    budget.close()


def test_a_target_error_needs_noise_and_a_share(noisy: Task) -> None:
    for changed in ({"noise_sigma": 0.0, "noise_target_error": 0.1}, {"noise_target_error": math.inf}):
        with pytest.raises(ConfigError, match="noise_target_error"):
            msgspec.structs.replace(noisy, **changed).check()


CLIENTS, ROUNDS, CONFIDENCE = 20, 20_000, 1e-4
EPSILON, DELTA = 2.0, 1e-5
MULTIPLIER = 2.15  # epsilon([2.15], 1e-5) <= 2 with some room


def neighbours() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """20 clients of one sample each in bins of their own; in the other world one has gone to its
    neighbour's."""
    one = np.zeros(128)
    one[:CLIENTS] = 1
    other = one.copy()
    other[0], other[1] = 0, 2
    return one, other


def lower_bound(noisy_runs: Callable[[NDArray[np.float64]], NDArray[np.float64]]) -> float:
    """Largest epsilon that some attack proves, with both error rates bounded by Clopper and Pearson (1934).

    Attacks: how far the output lies along the difference of the two worlds, and how far it lies from the one.
    Thresholds are fixed before the runs, by which a bound holds for each; the level is shared between them.
    """
    one, other = neighbours()
    direction = (other - one) / np.linalg.norm(other - one)
    spread = MULTIPLIER * math.sqrt(2)
    runs = [noisy_runs(world) for world in (one, other)]
    scores = {
        "along": ([(each - one) @ direction for each in runs], np.linspace(0, 2, 5) * spread),
        "away": ([np.linalg.norm(each - one, axis=1) for each in runs], np.linspace(11.5, 13, 5) * spread),
    }
    best = 0.0
    for (first, second), thresholds in scores.values():
        for threshold in thresholds:
            hits = [int((score > threshold).sum()) for score in (first, second)]
            level = CONFIDENCE / 20
            upper = stats.beta.ppf(1 - level, hits[0] + 1, ROUNDS - hits[0])
            lower = stats.beta.ppf(level, hits[1], ROUNDS - hits[1] + 1) if hits[1] else 0.0
            if lower > DELTA:
                best = max(best, math.log((lower - DELTA) / upper))
    return best


def test_the_fixed_rule_keeps_its_epsilon_under_attack() -> None:
    rng = np.random.default_rng(7)
    base = MULTIPLIER * math.sqrt(2)
    assert epsilon([MULTIPLIER], DELTA) <= EPSILON
    found = lower_bound(lambda world: world + rng.normal(0, base, (ROUNDS, 128)))
    assert 0.5 < found < EPSILON, "the attack works, and does not find more than was promised"


def tanh_sigma(base: float, norm: float, median_norm: float) -> float:
    """A published rule. The norm is private, so the noise's size tells it; and it may be under `base`."""
    return base * (1 + 0.5 * math.tanh((norm - median_norm) / (0.1 * median_norm)))


def test_noise_that_follows_the_data_breaks_its_epsilon() -> None:
    """sigma = base (1 + tanh((norm - median) / (0.1 median)) / 2): the noise's size gives the world away."""
    rng = np.random.default_rng(7)
    base = MULTIPLIER * math.sqrt(2)
    median = float(np.linalg.norm(neighbours()[0]))

    def runs(world: NDArray[np.float64]) -> NDArray[np.float64]:
        sigma = tanh_sigma(base, float(np.linalg.norm(world)), median)
        return world + rng.normal(0, sigma, (ROUNDS, 128))

    assert lower_bound(runs) > EPSILON


def test_a_noisy_release_of_the_same_sum_is_another_ciphertext(noisy: Task, parts: Parts) -> None:
    still = np.zeros(128, np.int64)
    made = [
        build(noisy, [parts.one("a", 5)], lambda _: "GPU", parts.encryptor, sample=lambda _: still)
        for _ in range(2)
    ]
    assert made[0].entries[0].blob != made[1].entries[0].blob
