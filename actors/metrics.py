"""What the service has counted, for Prometheus: gathered from its actors, and handed on to Ray's agent."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector, CollectorRegistry
from ray.util import metrics as ray_metrics

from penrose_ray.telemetry import METRICS, Distribution, Kind, Metric, is_owners

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penrose_ray.telemetry import Labels, Snapshot, Value

ACTOR = "actor"
"""Label of every metric: the part of the service that counted."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class RaySink:
    """Hands on to `ray.util.metrics`; Ray's agent serves them as `ray_penrose_...`.

    Ten times a second: a change costs Ray some 10 us, and a request makes several.
    """

    def __init__(self, actor: str, every_s: float = 0.1) -> None:
        self._actor = actor
        self._made: dict[str, Any] = {}
        self._mutex = threading.Lock()
        self._totals: dict[tuple[str, Labels], float] = {}
        """What counters grew by, and what gauges are."""
        self._observed: list[tuple[Metric, Labels, float]] = []
        threading.Thread(target=self._work, args=(every_s,), name="metrics", daemon=True).start()

    def note(self, metric: Metric, labels: Labels, value: float) -> None:
        """Remember one change."""
        with self._mutex:
            if metric.kind is Kind.HISTOGRAM:
                self._observed.append((metric, labels, value))
            else:
                before = self._totals.get((metric.name, labels), 0.0) if metric.kind is Kind.COUNTER else 0.0
                self._totals[metric.name, labels] = before + value

    def _work(self, every_s: float) -> None:
        while True:
            time.sleep(every_s)
            self.flush()

    def flush(self) -> None:
        """Hand on what was remembered."""
        with self._mutex:
            totals, self._totals = self._totals, {}
            observed, self._observed = self._observed, []
        for (name, labels), value in totals.items():
            self._record(METRICS[name], labels, value)
        for change in observed:
            self._record(*change)

    def _record(self, metric: Metric, labels: Labels, value: float) -> None:
        made = self._made.get(metric.name) or self._made.setdefault(metric.name, _ray_metric(metric))
        tags = {ACTOR: self._actor, **dict(zip(metric.labels, labels, strict=True))}
        if metric.kind is Kind.COUNTER:
            if value > 0:
                made.inc(value, tags)
        elif metric.kind is Kind.GAUGE:
            made.set(value, tags)
        else:
            made.observe(value, tags)


def _ray_metric(metric: Metric) -> ray_metrics.Metric:
    keys = (ACTOR, *metric.labels)
    match metric.kind:
        case Kind.COUNTER:
            return ray_metrics.Counter(metric.name, metric.help, keys)
        case Kind.GAUGE:
            return ray_metrics.Gauge(metric.name, metric.help, keys)
        case Kind.HISTOGRAM:
            return ray_metrics.Histogram(metric.name, metric.help, list(metric.bounds), keys)


def page(snapshots: Mapping[str, Snapshot]) -> bytes:
    """The counts of each actor in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(snapshots))
    return bytes(generate_latest(registry))


class _Collector(Collector):
    def __init__(self, snapshots: Mapping[str, Snapshot]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterable[Family]:
        for metric in METRICS.values():
            if is_owners(metric.name):
                continue
            family = _family(metric)
            for actor, snapshot in sorted(self._snapshots.items()):
                for labels, value in sorted(snapshot.get(metric.name, {}).items()):
                    _add(family, metric, [actor, *labels], value)
            if family.samples:
                yield family


def _family(metric: Metric) -> Family:
    names = [ACTOR, *metric.labels]
    match metric.kind:
        case Kind.COUNTER:
            return CounterMetricFamily(metric.name, metric.help, labels=names)
        case Kind.GAUGE:
            return GaugeMetricFamily(metric.name, metric.help, labels=names)
        case Kind.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.help, labels=names)


def _add(family: Family, metric: Metric, labels: list[str], value: Value) -> None:
    if isinstance(value, Distribution):
        family.add_metric(labels, list(_cumulative(metric, value)), value.total)  # type: ignore[arg-type]
    else:
        family.add_metric(labels, value)  # type: ignore[call-arg, arg-type]


def _cumulative(metric: Metric, value: Distribution) -> Iterator[tuple[str, float]]:
    total = 0
    for bound, count in zip([*metric.bounds, float("inf")], value.counts, strict=True):
        total += count
        yield ("+Inf" if bound == float("inf") else str(bound)), float(total)
