"""The registry of metrics: it counts, its page and its alerts agree with it."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from penrose_ray import telemetry
from penrose_ray.telemetry import METRICS, Kind, forward, is_owners, snapshot, stage_call

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
RULES = yaml.safe_load((ROOT / "configs" / "prometheus" / "alerts.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]


def test_the_page_says_what_the_registry_says() -> None:
    rows = dict(re.findall(r"^\| `(penrose_\w+)` \| (.*) \|$", PAGE, re.MULTILINE))
    wanted = {
        metric.name: f"{metric.kind.value} | {metric.unit} | {', '.join(metric.labels)} | {metric.help}"
        for metric in METRICS.values()
    }
    assert rows == wanted


def test_every_metric_is_counted_somewhere() -> None:
    folders = ("penrose_ray", "actors")
    source = "".join(path.read_text() for each in folders for path in (ROOT / each).rglob("*.py"))
    for name, value in vars(telemetry).items():
        if isinstance(value, telemetry.Metric):
            assert re.search(rf"\b{name}\.(add|set|observe|name)\b", source), name


def test_names_follow_prometheus_conventions() -> None:
    for metric in METRICS.values():
        assert re.fullmatch(r"penrose_[a-z_]+[a-z]", metric.name)
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER), metric.name
        assert list(metric.bounds) == sorted(metric.bounds)
        assert bool(metric.bounds) is (metric.kind is Kind.HISTOGRAM)
        assert metric.help.endswith(".")


@pytest.mark.parametrize("rule", ALERTS, ids=[rule["alert"] for rule in ALERTS])
def test_an_alert_uses_metrics_and_labels_that_exist_and_says_what_to_do(rule: dict[str, object]) -> None:
    expression = str(rule["expr"])
    used = re.findall(r"(penrose_\w+)(?:\{(\w+)[=~!])?", expression)
    assert used
    for name, label in used:
        assert not is_owners(name)
        assert not label or label in {"actor", *METRICS[name].labels}
    assert {"summary", "remedy"} == set(rule["annotations"])  # type: ignore[call-overload]
    assert str(rule["alert"]) in PAGE


def test_the_error_rate_of_the_objective_is_watched() -> None:
    (rule,) = [each for each in ALERTS if each["alert"] == "PenroseErrorRate"]
    assert rule["for"] == "3m"
    assert rule["expr"].strip().endswith("> 0.05")


def test_threads_count_together() -> None:
    before = telemetry.JOURNAL_ERRORS.value()
    threads = [
        threading.Thread(target=lambda: [telemetry.JOURNAL_ERRORS.add() for _ in range(1000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert telemetry.JOURNAL_ERRORS.value() - before == 4000


def test_observations_are_counted_by_size() -> None:
    metric = telemetry.COMMIT_REPORTS
    before = snapshot().get(metric.name, {}).get(())
    for value in (1, 2, 3, 5000):
        metric.observe(value)
    after = snapshot()[metric.name][()]
    assert isinstance(after, telemetry.Distribution)
    grown = list(after.counts)
    if isinstance(before, telemetry.Distribution):
        grown = [new - old for new, old in zip(after.counts, before.counts, strict=True)]
    assert grown == [1, 1, 1, *[0] * 7, 1]


def test_a_metric_is_used_as_what_it_is() -> None:
    with pytest.raises(TypeError, match="counter, no gauge"):
        telemetry.RELEASES.set(1)
    with pytest.raises(ValueError, match="labels"):
        telemetry.REPORTS.add(stage="shard")


def test_a_sink_hears_of_every_change_until_it_is_taken_away() -> None:
    class Sink:
        def __init__(self) -> None:
            self.heard: list[tuple[str, Sequence[str]]] = []

        def note(self, metric: telemetry.Metric, labels: Sequence[str], value: float) -> None:
            assert value >= 0
            self.heard.append((metric.name, labels))

    sink = Sink()
    forget = forward(sink)
    with stage_call("shard"):
        telemetry.DISK_FREE_BYTES.set(5)
    forget()
    telemetry.DISK_FREE_BYTES.set(6)
    assert sink.heard == [
        ("penrose_disk_free_bytes", ()),
        ("penrose_stage_seconds", ("shard",)),
        ("penrose_busy_seconds_total", ("shard",)),
    ]
