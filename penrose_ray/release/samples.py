"""Series of metrics as Prometheus answers a range query: `GET /api/v1/query_range`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import msgspec
import numpy as np

from penrose_ray.errors import TimelineError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NOT_SHOWN: Final = ("__name__", "job", "instance")
_REMEDY: Final = "Ask again: curl 'http://HOST:9090/api/v1/query_range?query=...&step=5'."


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: list[tuple[float, str]] = []


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: Literal["matrix"]
    result: list[_Series]


class _Answer(msgspec.Struct, frozen=True):
    status: Literal["success"]
    data: _Data


@dataclass(frozen=True, slots=True)
class Series:
    """One metric with one set of labels."""

    name: str
    label: str
    """Name and labels, as a column's title."""
    times_s: NDArray[np.float64]
    """Ascending."""
    values: NDArray[np.float64]

    @property
    def counts(self) -> bool:
        """Whether it only grows, by its name."""
        return self.name.endswith(("_total", "_sum", "_count", "_bucket"))

    def at(self, time_s: float, tolerance_s: float) -> float | None:
        """The sample nearest to a time, None when none is within the tolerance.

        Of a counter it is the rate over the interval that ends with the sample, per second.
        """
        place = int(np.argmin(np.abs(self.times_s - time_s))) if len(self.times_s) else -1
        if place < 0 or abs(self.times_s[place] - time_s) > tolerance_s:
            return None
        if not self.counts:
            return float(self.values[place])
        place = max(place, 1)
        if place >= len(self.values):
            return None
        return float(self.grown()[place - 1] / (self.times_s[place] - self.times_s[place - 1]))

    def grown(self) -> NDArray[np.float64]:
        """What a counter has grown by from sample to sample; after a restart it counts from 0."""
        change = np.diff(self.values)
        return np.where(change < 0, self.values[1:], change)


def read_series(raw: bytes, name: str) -> list[Series]:
    """The series of an answer; samples that are no numbers are left out.

    Raises:
        TimelineError: it is no answer to a range query, or its times do not ascend.
    """
    try:
        answer = msgspec.json.decode(raw, type=_Answer)
        return [_series(each) for each in answer.data.result]
    except (msgspec.MsgspecError, ValueError) as error:
        raise TimelineError(f"{name} is no answer to a range query: {error}.", remedy=_REMEDY) from error


def _series(raw: _Series) -> Series:
    name = raw.metric.get("__name__", "")
    labels = ",".join(f"{key}={value}" for key, value in sorted(raw.metric.items()) if key not in _NOT_SHOWN)
    pairs = np.array([(time_s, float(value)) for time_s, value in raw.values], dtype=np.float64).reshape(
        -1, 2
    )
    pairs = pairs[np.isfinite(pairs).all(axis=1)]
    if (np.diff(pairs[:, 0]) <= 0).any():
        raise ValueError(f"the times of {name or 'a series'} do not ascend")
    label = f"{name}{{{labels}}}" if labels else name
    return Series(name, label or "value", pairs[:, 0], pairs[:, 1])
