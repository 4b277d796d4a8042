"""Noise: a discrete Gaussian on each bin, added under encryption, and what it must hide.

Neighbouring inputs are two fleets in which one client's histograms differ: it reports the same classes,
counter sets and hours, with any other content. (Whether and when a client reports is hidden by the gate and
by cover reports, not by this noise.) How far that moves all sums of a batch is `accuracy.sensitivity`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from penrose_ray import accuracy
from penrose_ray.crypto.packing import BINS, Slots
from penrose_ray.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from penrose_ray.task import Task


def sensitivity(task: Task) -> float:
    """L2 sensitivity of all sums of one batch, in samples.

    Raises:
        ConfigError: the task has no tokens, so nothing bounds what one client sends.
    """
    if not task.tokens_per_day:
        raise ConfigError(
            "Noise hides nothing in a task without tokens: one client may send any number of reports.",
            remedy="Set task.tokens_per_day, or task.noise_sigma = 0.",
        )
    return accuracy.sensitivity(
        task.samples_per_histogram, tokens=task.tokens_per_batch, reports_per_class=task.reports_per_class
    )


def discrete_gaussian(sigma: float) -> NDArray[np.int64]:
    """128 independent values (Canonne, Kamath, Steinke 2020), sampled exactly by OpenDP."""
    return np.array(_mechanism(sigma)([0] * BINS), np.int64)


@functools.lru_cache(maxsize=8)
def _mechanism(sigma: float) -> Callable[[list[int]], list[int]]:
    try:
        import opendp.prelude as dp  # noqa: PLC0415 - an optional extra, 0.3 s
    except ImportError as error:
        raise ConfigError(
            "This task asks for noise, and OpenDP is not installed.", remedy="pip install 'penrose-ray[dp]'"
        ) from error
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    made: Callable[[list[int]], list[int]] = dp.m.make_gaussian(*space, scale=sigma)
    return made


def noise_slots(task: Task, sample: Callable[[float], NDArray[np.int64]] = discrete_gaussian) -> Slots:
    """Noise as slots that are added to a sum: offsets keep them from going negative.

    A draw beyond the offsets (12 sigma, once in 10^30) is drawn again.
    """
    offsets = task.noise_offsets()
    while True:
        noise = sample(task.noise_sigma)
        if np.abs(noise).max() <= offsets.bin and abs(int(noise.sum())) <= offsets.unfilled:
            return Slots(noise + offsets.bin, offsets.unfilled - int(noise.sum()), 0)
