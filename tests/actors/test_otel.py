"""OpenTelemetry: what is counted arrives, in memory and at a collector over HTTP."""

from __future__ import annotations

import sys
import threading
import time
import urllib.request
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest
from e2e.service_config import settings_in

from penrose_ray import telemetry
from penrose_ray.actors.otel import ENDPOINT_VARIABLE, OtelSink, export
from penrose_ray.actors.topology import build
from penrose_ray.clock import ManualClock
from penrose_ray.errors import ConfigError
from penrose_ray.telemetry import METRICS, Kind, forward

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penrose_ray.crypto.keyfile import DesignKeys

sdk = pytest.importorskip("opentelemetry.sdk", reason="penrose-ray[otel] is not installed")

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (  # noqa: E402
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402
from opentelemetry.sdk.metrics import MeterProvider  # noqa: E402
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402


class Memory:
    """A meter and a tracer that keep what they get."""

    def __init__(self, clock: ManualClock) -> None:
        self._reader = InMemoryMetricReader()
        self._spans = InMemorySpanExporter()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider([self._reader])
        self.sink = OtelSink(meters.get_meter("test"), tracers.get_tracer("test"), clock)
        self.spans = self._spans.get_finished_spans

    def metrics(self) -> dict[str, object]:
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        found = [m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics]
        return {metric.name: metric for metric in found}


@pytest.fixture
def memory() -> Iterator[Memory]:
    made = Memory(ManualClock(start_s=1_000.0))
    forget = forward(made.sink)
    yield made
    forget()


def points(metric: object) -> dict[tuple[str, ...], object]:
    return {tuple(each.attributes.values()): each for each in metric.data.data_points}  # type: ignore[attr-defined]


def test_every_kind_arrives_with_its_labels_and_unit(memory: Memory) -> None:
    telemetry.REPORTS.add(3, stage="shard", outcome="accepted")
    telemetry.REPORTS.add(2, stage="shard", outcome="accepted")
    telemetry.DISK_FREE_BYTES.set(7)
    telemetry.DISK_FREE_BYTES.set(5)
    telemetry.COMMIT_REPORTS.observe(3)
    telemetry.COMMIT_REPORTS.observe(400)
    found = memory.metrics()
    assert points(found["penrose_reports"])["shard", "accepted"].value == 5  # type: ignore[attr-defined]
    free = found["penrose_disk_free_bytes"]
    assert free.unit == "By"  # type: ignore[attr-defined]
    assert points(free)[()].value == 5  # type: ignore[attr-defined]
    (commits,) = points(found["penrose_commit_reports"]).values()
    assert tuple(commits.explicit_bounds) == telemetry.COMMIT_REPORTS.bounds  # type: ignore[attr-defined]
    assert (commits.count, commits.sum) == (2, 403)  # type: ignore[attr-defined]


def test_a_timed_call_is_a_span_of_its_own_that_ends_now(memory: Memory) -> None:
    telemetry.STAGE_SECONDS.observe(0.25, stage="matcher")
    telemetry.HTTP_SECONDS.observe(0.5, resource="reports")
    spans = memory.spans()
    assert [each.name for each in spans] == ["stage matcher", "http reports"]
    first = spans[0]
    assert (first.start_time, first.end_time) == (999_750_000_000, 1_000_000_000_000)
    assert dict(first.attributes) == {"stage": "matcher"}
    assert all(each.parent is None for each in spans)


def test_what_an_owner_s_client_counts_is_left_out(memory: Memory) -> None:
    telemetry.CLIENT_LAUNCHES.add(5)
    telemetry.RELEASES.add()
    assert set(memory.metrics()) == {"penrose_releases"}


def test_every_metric_of_the_service_can_be_made(memory: Memory) -> None:
    wanted = set()
    for metric in METRICS.values():
        memory.sink.note(metric, tuple("x" for _ in metric.labels), 1.0)
        if not telemetry.is_owners(metric.name):
            suffix = "_total" if metric.kind is Kind.COUNTER else ""
            wanted.add(metric.name.removesuffix(suffix))
    assert set(memory.metrics()) == wanted


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.bodies: dict[str, list[bytes]] = defaultdict(list)


class _Post(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        self.server.bodies[self.path].append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing to say."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_collector_gets_metrics_and_spans_over_http(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    end = export("shard-7")
    telemetry.RELEASES.add(4)
    telemetry.STAGE_SECONDS.observe(0.1, stage="shard")
    end()
    telemetry.RELEASES.add(100)

    metrics = ExportMetricsServiceRequest.FromString(collector.bodies["/v1/metrics"][-1])
    (resource,) = metrics.resource_metrics
    names = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert (names["service.name"], names["service.instance.id"]) == ("penrose-ray", "shard-7")
    by_name = {each.name: each for each in resource.scope_metrics[0].metrics}
    assert by_name["penrose_releases"].sum.data_points[0].as_double == 4
    (spans,) = collector.bodies["/v1/traces"]
    trace = ExportTraceServiceRequest.FromString(spans)
    (span,) = trace.resource_spans[0].scope_spans[0].spans
    assert span.name == "stage shard"
    assert span.end_time_unix_nano - span.start_time_unix_nano == 100_000_000


@pytest.mark.slow
def test_the_actors_of_a_service_report_to_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, design_keys: DesignKeys
) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, f"http://127.0.0.1:{collector.server_port}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    with build(*settings_in(tmp_path, design_keys)) as service:
        seen: dict[str, set[str]] = defaultdict(set)
        end_s = time.monotonic() + 300
        while "penrose_http_requests" not in seen["gateway-0"] and time.monotonic() < end_s:
            urllib.request.urlopen(f"{service.url}/health").close()  # noqa: S310 - loopback
            for body in list(collector.bodies["/v1/metrics"]):
                for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                    names = {each.key: each.value.string_value for each in resource.resource.attributes}
                    metrics = {each.name for scope in resource.scope_metrics for each in scope.metrics}
                    seen[names["service.instance.id"]] |= metrics
        assert "penrose_http_requests" in seen["gateway-0"]


def test_without_the_variable_nothing_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    before = len(telemetry._sinks)
    export("shard-7")()
    assert len(telemetry._sinks) == before


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(ConfigError) as caught:
        export("shard-7")
    assert "penrose-ray[otel]" in caught.value.remedy
