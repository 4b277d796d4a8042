"""Make configs/grafana/penrose.json from the registry of metrics; rows are the sections of docs/metrics.md.

python scripts/dashboard.py > configs/grafana/penrose.json
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from penrose_ray.telemetry import METRICS, Kind, Metric, is_owners

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
UNITS = {"seconds": "s", "bytes": "bytes", "ratio": "percentunit"}
WIDTH, HEIGHT, COLUMNS = 8, 7, 3
SOURCE = {"type": "prometheus", "uid": "${source}"}
WINDOW = "$__rate_interval"
Json = dict[str, Any]


def sections() -> dict[str, list[Metric]]:
    """Metrics of the service by the heading that explains them, in the page's order."""
    found: dict[str, list[Metric]] = {}
    heading = ""
    for line in PAGE.read_text().splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        elif (row := re.match(r"\| `(penrose_\w+)`", line)) and not is_owners(row[1]):
            found.setdefault(heading, []).append(METRICS[row[1]])
    return found


def queries(metric: Metric) -> list[tuple[str, str]]:
    """Expressions with their legends: rates of counters, gauges as they are, quantiles of histograms."""
    by = ", ".join(metric.labels or ("actor",))
    legend = " ".join(f"{{{{{label}}}}}" for label in metric.labels or ("actor",))
    match metric.kind:
        case Kind.COUNTER:
            return [(f"sum by ({by}) (rate({metric.name}[{WINDOW}]))", legend)]
        case Kind.GAUGE:
            return [(f"max by (actor, {by}) ({metric.name})" if metric.labels else metric.name, legend)]
        case Kind.HISTOGRAM:
            buckets = f"sum by (le, {by}) (rate({metric.name}_bucket[{WINDOW}]))"
            return [
                (f"histogram_quantile({quantile}, {buckets})", f"{legend} p{round(quantile * 100)}")
                for quantile in (0.5, 0.99)
            ]


def unit(metric: Metric) -> str:
    """Grafana's name of the unit; a counter of seconds a second is a share."""
    if metric.kind is Kind.COUNTER:
        return {"seconds": "percentunit", "bytes": "Bps"}.get(metric.unit, "cps")
    return UNITS.get(metric.unit, "short")


def panel(metric: Metric, number: int, x: int, y: int) -> Json:
    """A time series."""
    return {
        "id": number,
        "type": "timeseries",
        "title": metric.name.removeprefix("penrose_").removesuffix("_total").replace("_", " "),
        "description": metric.help,
        "datasource": SOURCE,
        "gridPos": {"h": HEIGHT, "w": WIDTH, "x": x, "y": y},
        "fieldConfig": {"defaults": {"unit": unit(metric), "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for place, (query, legend) in enumerate(queries(metric))
        ],
    }


def panels() -> list[Json]:
    """A row a section, three panels side by side."""
    made: list[Json] = []
    y = 0
    for heading, metrics in sections().items():
        place = {"h": 1, "w": WIDTH * COLUMNS, "x": 0, "y": y}
        made.append(
            {"id": len(made) + 1, "type": "row", "title": heading, "collapsed": False, "gridPos": place}
        )
        y += 1
        for position, metric in enumerate(metrics):
            line, column = divmod(position, COLUMNS)
            made.append(panel(metric, len(made) + 1, column * WIDTH, y + line * HEIGHT))
        y += HEIGHT * -(-len(metrics) // COLUMNS)
    return made


def dashboard() -> Json:
    """The whole dashboard, to be imported as it is."""
    source = {"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"}
    return {
        "uid": "penrose-ray",
        "title": "penrose-ray",
        "tags": ["penrose-ray"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": panels(),
    }


if __name__ == "__main__":
    print(json.dumps(dashboard(), indent=1))
