"""Prometheus and Grafana: promtool's verdict, a case an alert, a dashboard that follows the registry."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from penrose_ray.crypto.secretfile import own_token
from penrose_ray.telemetry import METRICS, Kind, is_owners

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "configs" / "prometheus"
DASHBOARD: dict[str, Any] = json.loads((ROOT / "configs" / "grafana" / "penrose.json").read_text())
PANELS = [each for each in DASHBOARD["panels"] if each["type"] != "row"]


def promtool(*arguments: object) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return subprocess.run(
        [tool, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dashboard", ROOT / "scripts" / "dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_promtool_accepts_configuration_and_rules_once_the_token_is_there(tmp_path: Path) -> None:
    for name in ("prometheus.yml", "alerts.yml"):
        shutil.copy(PROMETHEUS / name, tmp_path)
    done = promtool("check", "config", tmp_path / "prometheus.yml")
    assert (done.returncode, "metrics.token" in done.stdout + done.stderr) == (1, True)
    own_token(tmp_path / "metrics.token")
    done = promtool("check", "config", tmp_path / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout


def test_every_alert_fires_when_it_should_and_not_before() -> None:
    done = promtool("test", "rules", PROMETHEUS / "alerts.test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_sees_an_alert_that_does_not_fire(tmp_path: Path) -> None:
    """The cases can fail: with the error rate's bound at a half, 10 % is no alert."""
    rules = (PROMETHEUS / "alerts.yml").read_text()
    (tmp_path / "alerts.yml").write_text(rules.replace("> 0.05", "> 0.5"))
    shutil.copy(PROMETHEUS / "alerts.test.yml", tmp_path)
    done = promtool("test", "rules", tmp_path / "alerts.test.yml")
    assert done.returncode == 1
    assert "PenroseErrorRate" in done.stdout + done.stderr


def test_every_alert_has_a_case() -> None:
    rules = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())
    cases = yaml.safe_load((PROMETHEUS / "alerts.test.yml").read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    fired = {
        case["alertname"] for test in cases["tests"] for case in test["alert_rule_test"] if case["exp_alerts"]
    }
    assert fired == alerts


def test_the_dashboard_is_what_the_registry_makes(generator: ModuleType) -> None:
    assert generator.dashboard() == DASHBOARD, (
        "run: python scripts/dashboard.py > configs/grafana/penrose.json"
    )


def test_every_metric_of_the_service_has_one_panel_and_no_client_s_has() -> None:
    shown = [
        re.findall(r"(penrose_\w+?)(?:_bucket)?(?:\{|\[|\)|$)", target["expr"])[0]
        for panel in PANELS
        for target in panel["targets"][:1]
    ]
    wanted = [name for name in METRICS if not is_owners(name)]
    assert sorted(shown) == sorted(wanted)


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    ids = [each["id"] for each in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for each in DASHBOARD["panels"]:
        place = each["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, each["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_prometheus_understands_every_query_of_the_dashboard(tmp_path: Path) -> None:
    queries = [
        target["expr"].replace("$__rate_interval", "1m") for each in PANELS for target in each["targets"]
    ]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
    assert sum(metric.kind is Kind.HISTOGRAM for metric in METRICS.values()) == sum(
        query.startswith("histogram_quantile(0.99") for query in queries
    )
