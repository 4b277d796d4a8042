"""A simulated fleet with planted truths, written as a release, for notebooks that have no real one.

No launch here ran on a GPU. The task holds no key, because nothing is encrypted on the way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray.analyse.kinds import kind_duration_set
from penrose_ray.histogram import Axis, Counter, CounterSet, count
from penrose_ray.opening import OpenedSum, Opening, write_parquet
from penrose_ray.task import Task
from penrose_ray.types import BatchId, ClassId

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

FIRST_DAY = 20_000
CONTRIBUTORS = 240


@dataclass(frozen=True)
class Application:
    """What is true of a class: shares of samples, typical duration, GPU model."""

    name: str
    gpu_model: str
    launches: int
    duration_ns: float
    quadrants: tuple[float, float, float, float]
    """Both, tensor only, DRAM only, idle."""
    kinds: tuple[float, ...]
    """gemm, conv, attention, elementwise, reduction, copy, collective, other."""


FLEET = (
    Application(
        "training", "NVIDIA A100-SXM4-80GB", 60_000, 80_000.0, (0.34, 0.38, 0.18, 0.10),
        (0.40, 0.0, 0.15, 0.20, 0.08, 0.02, 0.15, 0.0),
    ),
    Application(
        "inference", "NVIDIA L40S", 40_000, 25_000.0, (0.41, 0.29, 0.21, 0.09),
        (0.35, 0.05, 0.25, 0.20, 0.10, 0.05, 0.0, 0.0),
    ),
    Application(
        "stencil", "Tesla V100-SXM2-32GB", 20_000, 300_000.0, (0.02, 0.01, 0.82, 0.15),
        (0.0, 0.0, 0.0, 0.70, 0.05, 0.20, 0.0, 0.05),
    ),
)  # fmt: skip


def counter_sets() -> tuple[CounterSet, ...]:
    """Durations, DRAM by tensor use, kernel kind by duration."""
    use = [Counter(name, "%", "dcgm", "nvidia") for name in ("dram_active", "tensor_active")]
    halves = (Axis("linear", 0.0, 100.0, 16), Axis("linear", 0.0, 100.0, 8))
    return (
        CounterSet(
            "duration", (Counter("duration", "ns", "cupti", "nvidia"),), axes=(Axis("log", 1e3, 1e8),)
        ),
        CounterSet("dram_tensor", tuple(use), axes=halves),
        kind_duration_set("cupti", "nvidia", low_ns=1e3, high_ns=1e8),
    )


def example_release(
    path: Path,
    *,
    days: int = 2,
    slower: float = 1.0,
    noise_sigma: float = 0.0,
    keep_share: float = 1.0,
    sub_batches: int = 1,
    seed: int = 1,
) -> Path:
    """Write the fleet's release.

    Args:
        path: the file.
        days: batches.
        slower: stretches the durations of the training class.
        noise_sigma: standard deviation of the noise in each bin of each sum.
        keep_share: share of the training class' reports that were kept under load.
        sub_batches: sums that a class' reports are divided into.
        seed: of all draws.
    """
    sets, random = counter_sets(), np.random.default_rng(seed)
    task = Task(
        name="example fleet",
        demo=True,
        public_key=b"",
        counter_sets=sets,
        rotation=(tuple(each.name for each in sets),),
        tokens_per_day=0,
        noise_sigma=noise_sigma,
        sub_batches=sub_batches,
    )
    openings = []
    for day in range(FIRST_DAY, FIRST_DAY + days):
        sums = [
            _noisy(part, noise_sigma, random)
            for place, application in enumerate(FLEET)
            for one in sets
            for part in _parts(
                _sum(one, application, place, day, random, slower if application.name == "training" else 1.0),
                sub_batches,
                keep_share if application.name == "training" else 1.0,
                random,
            )
        ]
        openings.append(Opening(task, BatchId(day), tuple(sums), ()))
    write_parquet(openings, path)
    return path


def class_id(name: str) -> str:
    """The class id of an application, as it stands in frames."""
    return _class_id([each.name for each in FLEET].index(name)).hex()


def _class_id(place: int) -> ClassId:
    return ClassId(np.random.default_rng(100 + place).bytes(16))


def _sum(
    one: CounterSet, app: Application, place: int, day: int, random: np.random.Generator, slower: float
) -> OpenedSum:
    counts = count(one, _values(one.name, app, random, slower))
    return OpenedSum(
        class_id=_class_id(place),
        gpu_model=app.gpu_model,
        counter_set=one,
        batch=BatchId(day),
        reports=CONTRIBUTORS,
        real_reports=round(CONTRIBUTORS * 0.9),
        samples=int(counts.sum()),
        counts=counts,
    )


def _parts(whole: OpenedSum, number: int, keep_share: float, random: np.random.Generator) -> list[OpenedSum]:
    """The sum as sub-batches of what is kept of it."""
    kept = random.binomial(whole.counts, keep_share)
    divided = [random.multinomial(count, np.full(number, 1 / number)) for count in kept]
    return [
        replace(
            whole,
            counts=counts,
            samples=int(counts.sum()),
            reports=round(whole.reports * keep_share / number),
            real_reports=round(whole.real_reports * keep_share / number),
            sub_batch=place,
            keep_share=keep_share,
        )
        for place, counts in enumerate(np.array(divided).T)
    ]


def _noisy(sum_: OpenedSum, sigma: float, random: np.random.Generator) -> OpenedSum:
    """With noise of the size that a release desk adds; here it comes from a seed."""
    noise = np.rint(random.normal(0.0, sigma, len(sum_.counts))).astype(np.int64)
    counts = sum_.counts + noise
    return replace(sum_, counts=counts, samples=int(counts.sum()))


def _values(name: str, app: Application, random: np.random.Generator, slower: float) -> NDArray[np.float64]:
    """Samples of a counter set, shape (launches, counters)."""
    size = app.launches
    durations = random.lognormal(np.log(app.duration_ns * slower), 0.6, size)
    if name == "duration":
        return durations[:, None]
    if name == "kind_duration":
        return np.stack([random.choice(8, size, p=app.kinds), durations], axis=1)
    quadrant = random.choice(4, size, p=app.quadrants)
    high, low = random.uniform(55, 100, (2, size)), random.uniform(0, 45, (2, size))
    dram = np.where(np.isin(quadrant, (0, 2)), high[0], low[0])
    tensor = np.where(np.isin(quadrant, (0, 1)), high[1], low[1])
    return np.stack([dram, tensor], axis=1)
