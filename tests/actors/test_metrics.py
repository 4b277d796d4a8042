"""What was counted, as Prometheus and Ray get it."""

from __future__ import annotations

import warnings

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penrose_ray.actors.metrics import ACTOR, RaySink, page
from penrose_ray.telemetry import METRICS, Distribution, Kind, Metric, is_owners


@pytest.mark.parametrize("metric", METRICS.values(), ids=list(METRICS))
def test_ray_takes_every_metric(metric: Metric) -> None:
    sink = RaySink("shard-0", every_s=3600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Ray discards a metric whose name it does not like, with a warning
        sink.note(metric, ("x",) * len(metric.labels), 2.0)
        sink.note(metric, ("x",) * len(metric.labels), 0.0)
        sink.flush()
    (made,) = sink._made.values()
    assert made.info["name"] == metric.name
    assert made.info["tag_keys"] == (ACTOR, *metric.labels)
    assert not made._discard_metric


def test_the_page_holds_every_actor_s_values_and_no_client_s() -> None:
    counts = Distribution((1, 2, 0, *[0] * 8), 7.0)
    text = page(
        {
            "shard-1": {"penrose_sums": {(): 4.0}, "penrose_commit_reports": {(): counts}},
            "shard-0": {"penrose_sums": {(): 3.0}, "penrose_client_launches_total": {(): 9.0}},
            "gateway-0": {"penrose_http_requests_total": {("reports", "200"): 5.0}},
        }
    ).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families.keys() == {"penrose_sums", "penrose_commit_reports", "penrose_http_requests"}
    assert [(s.labels[ACTOR], s.value) for s in families["penrose_sums"].samples] == [
        ("shard-0", 3.0),
        ("shard-1", 4.0),
    ]
    buckets = {
        s.labels["le"]: s.value
        for s in families["penrose_commit_reports"].samples
        if s.name.endswith("_bucket")
    }
    assert (buckets["1.0"], buckets["2.0"], buckets["+Inf"]) == (1, 3, 3)
    assert METRICS["penrose_sums"].help in text


def test_a_client_s_metrics_are_known_as_its_owner_s() -> None:
    assert {name for name in METRICS if "client" in name} == {name for name in METRICS if is_owners(name)}
    assert all(METRICS[name].kind is Kind.COUNTER for name in METRICS if is_owners(name))
