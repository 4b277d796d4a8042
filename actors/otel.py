"""What a process counts, for OpenTelemetry: to a collector, if OTEL_EXPORTER_OTLP_ENDPOINT names one.

Metrics go out as they are registered, and every timed call becomes a span of its own. Spans have no parents:
a trace that followed a report from hop to hop would link what the service keeps apart.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from penrose_ray.clock import SystemClock
from penrose_ray.errors import ConfigError
from penrose_ray.telemetry import (
    COMMIT_SECONDS,
    HTTP_SECONDS,
    STAGE_SECONDS,
    Kind,
    Metric,
    forward,
    is_owners,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from opentelemetry.metrics import Counter, Histogram, Meter
    from opentelemetry.metrics import _Gauge as Gauge
    from opentelemetry.trace import Tracer

    from penrose_ray.clock import Clock

ENDPOINT_VARIABLE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
SPANS: Final = {
    STAGE_SECONDS.name: "stage",
    HTTP_SECONDS.name: "http",
    COMMIT_SECONDS.name: "commit",
}
"""Durations that become spans, and the spans' names."""
_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}


class OtelSink:
    """Hands on to a meter and a tracer; what belongs to a GPU's owner is left out."""

    def __init__(self, meter: Meter, tracer: Tracer, clock: Clock) -> None:
        self._meter = meter
        self._tracer = tracer
        self._clock = clock
        self._made: dict[str, Counter | Gauge | Histogram] = {}

    def note(self, metric: Metric, labels: Sequence[str], value: float) -> None:
        """Record one change, and the call that a duration is about as a span that ends now."""
        if is_owners(metric.name):
            return
        made = self._made.get(metric.name) or self._made.setdefault(metric.name, self._make(metric))
        attributes = dict(zip(metric.labels, labels, strict=True))
        match metric.kind:
            case Kind.COUNTER:
                made.add(float(value), attributes)  # type: ignore[union-attr]
            case Kind.GAUGE:
                made.set(float(value), attributes)  # type: ignore[union-attr]
            case Kind.HISTOGRAM:
                made.record(float(value), attributes)  # type: ignore[union-attr]
        if metric.name in SPANS:
            self._span(metric, attributes, value)

    def _span(self, metric: Metric, attributes: dict[str, str], seconds: float) -> None:
        end_ns = round(self._clock.now_s() * 1e9)
        start_ns = end_ns - round(seconds * 1e9)
        name = " ".join([SPANS[metric.name], *attributes.values()])
        self._tracer.start_span(name, attributes=attributes, start_time=start_ns).end(end_ns)

    def _make(self, metric: Metric) -> Counter | Gauge | Histogram:
        name = metric.name.removesuffix("_total")
        unit = _UNITS.get(metric.unit, f"{{{metric.unit}}}" if metric.unit else "1")
        match metric.kind:
            case Kind.COUNTER:
                return self._meter.create_counter(name, unit, metric.help)
            case Kind.GAUGE:
                return self._meter.create_gauge(name, unit, metric.help)
            case Kind.HISTOGRAM:
                return self._meter.create_histogram(
                    name, unit, metric.help, explicit_bucket_boundaries_advisory=list(metric.bounds)
                )


def export(actor: str) -> Callable[[], None]:
    """Send what this process counts from now on to the collector, if OTEL_EXPORTER_OTLP_ENDPOINT is set.

    OpenTelemetry's other variables (interval, headers, certificates) count as usual.

    Args:
        actor: the part of the service, `service.instance.id`.

    Returns:
        What sends the rest and ends it.

    Raises:
        ConfigError: the variable is set and the packages are missing.
    """
    if not os.environ.get(ENDPOINT_VARIABLE):
        return lambda: None
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            f"{ENDPOINT_VARIABLE} is set, but OpenTelemetry is not installed: {error}.",
            remedy="Run pip install 'penrose-ray[otel]', or unset the variable.",
        ) from error
    resource = Resource.create({"service.name": "penrose-ray", "service.instance.id": actor})
    meters = MeterProvider([PeriodicExportingMetricReader(OTLPMetricExporter())], resource)
    tracers = TracerProvider(resource=resource)
    tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    forget = forward(
        OtelSink(meters.get_meter("penrose_ray"), tracers.get_tracer("penrose_ray"), SystemClock())
    )

    def end() -> None:
        forget()
        meters.shutdown()
        tracers.shutdown()

    return end
