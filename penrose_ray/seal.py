"""Sealing: a histogram and its class become a report that only a sum of many can open."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from penrose_ray.crypto.packing import Slots, pack
from penrose_ray.errors import ConfigError
from penrose_ray.histogram import BINS
from penrose_ray.types import ReportId
from penrose_ray.wire import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from penrose_ray.task import Task

_ID_BYTES = 32
_HOUR_S = 3600


class Encrypts(Protocol):
    """What sealing needs of an encryptor."""

    def encrypt(self, plaintexts: Sequence[int]) -> bytes:
        """Ciphertext blob of packed plaintexts."""
        ...


class ClassSignature(Protocol):
    """What sealing needs of a snippet signature."""

    @property
    def scheme(self) -> str:
        """Scheme id."""
        ...

    def to_bytes(self) -> bytes:
        """MinHash values."""
        ...


@dataclass(frozen=True, slots=True)
class Contribution:
    """A histogram in the clear; it never leaves the client's process."""

    counter_set: int
    counts: NDArray[np.int64]
    """128 counts; all 0 in a cover report."""
    real: bool


def cover(counter_set: int) -> Contribution:
    """A report that adds nothing: unfilled = H and real_reports = 0."""
    return Contribution(counter_set, np.zeros(BINS, np.int64), real=False)


def slots_of(contribution: Contribution, samples_per_histogram: int) -> Slots:
    """The slots of a report: bins + unfilled = H, and whether it is real.

    Raises:
        ConfigError: the histogram holds more than H samples, a negative count, or is a cover report's and not
            empty.
    """
    counts, most = contribution.counts, samples_per_histogram
    total = int(counts.sum())
    if ((counts < 0) | (counts > most)).any() or total > most:
        raise ConfigError(
            f"A histogram of {total} samples does not fit a task of {most}.",
            remedy="Cut histograms at samples_per_histogram.",
        )
    if total and not contribution.real:
        raise ConfigError(
            f"A cover report of {total} samples is none.", remedy="Make it with penrose_ray.seal.cover."
        )
    return Slots(counts, most - total, int(contribution.real))


class Sealer:
    """Makes reports of one task for one GPU model."""

    def __init__(
        self,
        task: Task,
        gpu_model: str,
        encryptor: Encrypts,
        *,
        new_id: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._task = task
        self._gpu_model = gpu_model
        self._encryptor = encryptor
        self._new_id = new_id
        self._profile = task.profile()
        self._task_id = task.task_id

    def seal(
        self, contribution: Contribution, signature: ClassSignature, *, now_s: float, token: bytes = b""
    ) -> Report:
        """Encrypt a contribution under the signature of its class' representative.

        `token` pays for the report and gives it its id; without one the id is random.
        """
        slots = slots_of(contribution, self._task.samples_per_histogram)
        return Report(
            task_id=self._task_id,
            report_id=ReportId(hashlib.sha256(token).digest() if token else self._new_id(_ID_BYTES)),
            created_hour=int(now_s // _HOUR_S),
            gpu_model=self._gpu_model,
            scheme=signature.scheme,
            signature=signature.to_bytes(),
            counter_set=contribution.counter_set,
            blob=self._encryptor.encrypt(pack(slots, self._profile)),
            token=token,
        )
